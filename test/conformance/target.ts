import { Hono } from 'hono'
import { createReceiver } from '../../src/index.ts'
import type { ExecutionContext } from '../../src/extend.ts'
import type { Receiver } from '../../src/index.ts'

/** The secret of every target. */
export const secret = 'conformance-secret-2f9c'

/** VINs of vehicles whose handlers take a while: they wait, or use the CPU. */
const slowVin = 'SLOW'
const burnVin = 'BURN'
export const slowVins: readonly string[] = [slowVin, burnVin]
/** How long a handler waits for such a vehicle, in milliseconds. */
const slowMs = 400

export interface TargetOptions {
  /** Options of the receiver, for instance a small limit. */
  readonly receiver?: Omit<Parameters<typeof createReceiver>[0], 'secret'>
}

/** Something that `serve` takes on every runtime: the receiver itself, and what it has handled. */
export interface TargetApp extends Pick<Receiver, 'open' | 'drain' | 'ack' | 'durability' | 'inbox'> {
  readonly fetch: (request: Request, env?: unknown, context?: ExecutionContext) => Response | Promise<Response>
  readonly receiver: Receiver
}

/**
 * The server that the conformance suite posts to, the same on every runtime: a receiver at the root and on the
 * collector's paths, once more below `/mounted` in a Hono app, and beside it, under `/target`:
 *
 * - `GET /target/events`: the events that were handled, in the order in which their handlers ended, `?after` that number of them;
 * - `GET /target/stats`: `receiver.stats()`.
 */
export function createTarget(options: TargetOptions = {}): TargetApp {
  const events: unknown[] = []
  const receiver = createReceiver({ ...options.receiver, secret }).on('*', async (event, { signal }) => {
    if (event.vin === slowVin) await sleep(slowMs, signal)
    if (event.vin === burnVin) burn()
    events.push(event)
  })
  const host = new Hono()
    .get('/target/events', (c) => c.json(events.slice(Number(c.req.query('after')))))
    .get('/target/stats', (c) => c.json(receiver.stats()))
    .route('/mounted', receiver.routes())

  return {
    receiver,
    open: receiver.open,
    drain: receiver.drain,
    ack: receiver.ack,
    durability: receiver.durability,
    inbox: receiver.inbox,
    fetch(request, env, context) {
      const { pathname } = new URL(request.url)
      const isHosts = /^\/(target|mounted)(\/|$)/.test(pathname)
      return isHosts ? host.fetch(request, env, context) : receiver.fetch(request, env as object, context)
    },
  }
}

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms)
    signal.addEventListener('abort', () => {
      clearTimeout(timer)
      reject(signal.reason)
    })
  })
}

/** Some hundred milliseconds of CPU, counted in work: on Workers the clock stands still while code runs. */
function burn(): number {
  let sum = 0
  for (let turn = 0; turn < 60_000_000; turn++) sum = (sum * 31 + turn) % 1_000_003
  return sum
}
