// A receiver as people run it, on Node, Bun or Deno: `receiver.ts <node|bun|deno>`, options of `serve` in SERVE.
// `/seen` reports what it handled and how much memory it used.
import { argv, env, memoryUsage } from 'node:process'
import { Hono } from 'hono'
import { createReceiver } from '../../../../src/index.ts'
import { secret, type Seen } from './seen.ts'

let handled: number[] = []
let peakBytes = 0
const look = (): void => {
  peakBytes = Math.max(peakBytes, memoryUsage().rss)
}
setInterval(look, 50).unref()

const silent = { debug() {}, info() {}, warn() {}, error() {} }
const receiver = createReceiver({ secret, log: silent }).on('data', ({ data }) => {
  handled.push(Number(data.BatteryLevel))
})
const app = new Hono()
  .get('/seen', (c) => {
    look()
    const seen: Seen = { handled, peakBytes, lost: receiver.stats().lost }
    handled = []
    peakBytes = 0
    return c.json(seen)
  })
  .route('/', receiver.routes())

const { serve } = await load(argv[2])
// Alone, a receiver reads Node's own requests.
const served = env['ALONE'] === '1' ? receiver : app
await serve(served, { port: 0, hostname: '127.0.0.1', ...JSON.parse(env['SERVE'] ?? '{}') })

async function load(
  runtime: string | undefined,
): Promise<Pick<typeof import('../../../../adapters/node.ts'), 'serve'>> {
  if (runtime === 'bun') return import('../../../../adapters/bun.ts')
  if (runtime === 'deno') return import('../../../../adapters/deno.ts')
  return import('../../../../adapters/node.ts')
}
