import type { serve as Serve } from 'fleethook/node'
import type { createReceiver as CreateReceiver } from 'fleethook'
import { secret } from './answer.ts'
import { measured } from './measured.ts'

/** Starts a receiver with one handler and every default. */
export async function startReceiver(createReceiver: typeof CreateReceiver, serve: typeof Serve): Promise<void> {
  let handled = 0
  let highestSpeed = 0
  const receiver = createReceiver({ secret }).on('data', ({ data }) => {
    handled += 1
    highestSpeed = Math.max(highestSpeed, data.VehicleSpeed ?? 0)
  })
  const { port } = await serve(receiver, { port: 0, hostname: '127.0.0.1', announce: false })
  measured(port, () => handled)
}
