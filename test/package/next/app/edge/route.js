import { receiving } from '../receiving.js'

export const runtime = 'edge'
export const { GET, POST } = receiving({})
