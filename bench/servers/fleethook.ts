// A receiver with one handler and every default.
import { serve } from '../../adapters/node.ts'
import { createReceiver } from '../../src/index.ts'
import { secret } from './answer.ts'
import { measured } from './measured.ts'

let handled = 0
let highestSpeed = 0

const receiver = createReceiver({ secret }).on('data', ({ data }) => {
  handled += 1
  highestSpeed = Math.max(highestSpeed, data.VehicleSpeed ?? 0)
})
const { port } = await serve(receiver, { port: 0, hostname: '127.0.0.1', announce: false })
measured(port, () => handled)
