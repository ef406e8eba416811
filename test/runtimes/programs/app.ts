import { Hono } from 'hono'
import { type Ack, createReceiver, type Durability } from '../../../src/index.ts'
import { metricsRoutes } from '../../../src/metrics.ts'
import { inboxOf } from './inbox.ts'

/** Settings that a test gives the receiver. */
export interface Settings {
  readonly ack?: Ack
  /** The durability that its inbox reports. Default `'memory'`. */
  readonly durability?: Durability
  /** Whether the inbox stores nothing before `POST /let/store`. */
  readonly holdsStore?: boolean
  /** Whether handlers wait for `POST /let/handle`. */
  readonly holdsHandlers?: boolean
  /** How long a handler waits, in milliseconds. Default 0. */
  readonly handlerMs?: number
  /** The number of runs of a handler that fail before one succeeds. Default 0. */
  readonly failures?: number
  /** Default 10. */
  readonly retryMs?: number
  readonly concurrency?: number
}

/** What the app reports at `GET /seen`. */
export interface Seen {
  /** `stored VIN`, `failed VIN`, `handled VIN`, in order. */
  readonly steps: readonly string[]
  /** The `BatteryLevel` of every message that was handled, in order. */
  readonly numbers: readonly unknown[]
  readonly stats: { readonly received: number; readonly handled: number; readonly lost: number; readonly lanes: number }
  /** What handlers found under `PLACE` in their `env`. */
  readonly places: readonly unknown[]
}

interface Bindings {
  readonly WEBHOOK_SECRET: string
  readonly PLACE: string
}

/** The same on every runtime: a receiver whose secret comes from `env`, in a Hono app that reports what it saw. */
export function createApp(settings: Settings = {}): Hono<{ Bindings: Bindings }> {
  const { durability = 'memory', handlerMs = 0, failures = 0, retryMs = 10 } = settings
  const steps: string[] = []
  const numbers: unknown[] = []
  const held = { store: settings.holdsStore ?? false, handle: settings.holdsHandlers ?? false }
  // Polls, because on Workers one request cannot wake another one that waits with a timer.
  const until = async (step: keyof typeof held): Promise<void> => {
    while (held[step]) await new Promise((resolve) => setTimeout(resolve, 10))
  }
  const places = new Set<unknown>()
  const receiver = createReceiver<Bindings>({
    secret: (env) => env.WEBHOOK_SECRET,
    inbox: inboxOf({ durability, ready: () => until('store'), stored: (vin) => steps.push(`stored ${vin}`) }),
    retry: { minMs: retryMs, maxMs: retryMs },
    ...(settings.ack === undefined ? {} : { ack: settings.ack }),
    ...(settings.concurrency === undefined ? {} : { concurrency: settings.concurrency }),
  }).on('*', async (event, { env, delivery }) => {
    places.add(env.PLACE)
    await until('handle')
    if (handlerMs > 0) await new Promise((resolve) => setTimeout(resolve, handlerMs))
    if (delivery.attempt <= failures) {
      steps.push(`failed ${event.vin}`)
      throw new Error('as the test wants it')
    }
    steps.push(`handled ${event.vin}`)
    if (event.topic === 'data') numbers.push(event.data.BatteryLevel)
  })
  return new Hono<{ Bindings: Bindings }>()
    .get('/seen', (c) => {
      const { received, handled, lost, lanes } = receiver.stats()
      return c.json({ steps, numbers, stats: { received, handled, lost, lanes }, places: [...places] })
    })
    .post('/let/store', (c) => {
      held.store = false
      return c.body(null, 204)
    })
    .post('/let/handle', (c) => {
      held.handle = false
      return c.body(null, 204)
    })
    .route('/metrics', metricsRoutes(receiver, { secret: () => 'a-secret-of-the-metrics' }))
    .route('/', receiver.routes())
}
