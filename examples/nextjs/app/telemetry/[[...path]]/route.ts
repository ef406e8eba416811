import { receiver } from '../../../receiver'

const handle = (request: Request): Response | Promise<Response> => receiver.fetch(request)

export { handle as GET, handle as OPTIONS, handle as POST }
