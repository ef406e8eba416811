import { type Client, type ConfigChange, createClient, ServiceError } from '../../../src/client.ts'
import { createReceiver } from '../../../src/index.ts'
import type { AnswerFault, StreamFault } from '../faulty-service.ts'

/** How the service fails while the client uses it: an answer that fails, or a stream that does. */
export type FailureMode = 'none' | AnswerFault | StreamFault

const isOfStream = (mode: FailureMode): mode is StreamFault =>
  mode === 'drop' || mode === 'silent' || mode === 'garbage'

/** The controls of the proxy and the sandbox that the journey uses. The real service does not have them. */
interface Controls {
  /** The next two answers fail. Of slow answers, only the next one is. */
  readonly failAnswers: () => Promise<void>
  readonly failNothing: () => Promise<void>
  readonly failStream: () => Promise<void>
  /** The vehicle sends a message. */
  readonly send: (message: object) => Promise<void>
  readonly sleep: (vin: string) => Promise<void>
}

function controlsOf(baseUrl: string, apiKey: string, mode: FailureMode): Controls {
  const control = async (method: string, path: string, body?: object): Promise<void> => {
    const headers = { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' }
    const init = { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) }
    const answer = await fetch(`${baseUrl}${path}`, init)
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`)
    await answer.body?.cancel()
  }
  const isOfAnswers = mode !== 'none' && !isOfStream(mode)
  return {
    failAnswers: async () => {
      if (isOfAnswers) await control('POST', '/faults', { answers: mode, count: mode === 'slow' ? 1 : 2 })
    },
    failNothing: () => control('DELETE', '/faults'),
    failStream: async () => {
      if (isOfStream(mode)) await control('POST', '/faults', { streams: mode })
      else if (isOfAnswers) await control('POST', '/faults', { streams: 'drop' })
    },
    send: (message) => control('POST', '/sandbox/messages', message),
    sleep: (vin) => control('POST', `/sandbox/vehicles/${vin}/sleep`, {}),
  }
}

const codeOf = async (promise: Promise<unknown>): Promise<unknown> =>
  promise.catch((error: unknown) => (error instanceof ServiceError ? [error.code, error.status] : String(error)))

/**
 * Uses the whole client against the sandbox at `baseUrl`, with the runtime's own `fetch`, streams and timers, while the sandbox
 * fails in this mode. Returns what it saw, which is the same in every mode: the client survives all of them. It needs a fresh vehicle
 * of the sandbox for each mode, and says which by its number.
 */
export async function sandboxJourney(
  baseUrl: string,
  apiKey: string,
  mode: FailureMode,
  number: number,
): Promise<Readonly<Record<string, unknown>>> {
  const log = { debug() {}, info() {}, warn() {}, error() {} }
  // Only an answer that is slow on purpose is to be given up: on a busy machine any can take half a second, and some calls are sent once.
  const timeoutMs = mode === 'slow' ? 2_000 : 30_000
  const client = createClient({ baseUrl, apiKey, log, timeoutMs, retry: { attempts: 5, minMs: 1, maxMs: 50 } })
  const controls = controlsOf(baseUrl, apiKey, mode)
  /** Makes a call while answers fail. */
  const call = async <T>(run: () => Promise<T>): Promise<T> => {
    await controls.failAnswers()
    return run()
  }
  /** Makes a call that is sent once, so it cannot survive a failure. */
  const once = async <T>(run: () => Promise<T>): Promise<T> => {
    await controls.failNothing()
    return run()
  }

  const products = await call(() => client.products())
  const vin = products.filter((product) => product.product_type === 'vehicle')[number]?.product_id
  const siteId = products.find((product) => product.product_type === 'energy')?.product_id
  if (vin === undefined || siteId === undefined)
    throw new Error(`The sandbox needs ${number + 1} vehicles and an energy site.`)
  const config = client.config(vin)
  const vehicle = client.vehicle(vin)
  const site = client.energySite(siteId)

  const seen: Record<string, unknown> = {
    regions: products.every(({ region }) => typeof region === 'string'),
    replaced: await call(() => config.replace({ fields: { Gear: { interval_seconds: 1 } } })).then(shown),
    patched: await call(() => config.patch({ fields: { BatteryLevel: null, ['Gaer' as string]: null } })).then(shown),
    config: await call(() => config.get()).then(({ fields }) => Object.keys(fields).toSorted()),
    webhook: await call(() => client.webhook.set({ url: 'https://receiver.example.com/', format: 'service' })).then(
      ({ format }) => format,
    ),
    paused: await call(() => client.webhook.get()).then(({ enabled }) => enabled),
    unset: await call(() => client.webhook.delete()),
    none: await call(() => codeOf(client.webhook.get())),
    woken: await once(() => client.wakeUp(vin)).then((woken) => woken.vin === vin),
    limited: await once(() => client.command(vin, 'set_charge_limit', { percent: 70 })).then(({ result }) => result),
    incomplete: await once(() => codeOf(client.command(vin, 'set_charge_limit'))),
    unknown: await once(() => codeOf(client.command(vin, 'fly'))),
    summary: await call(() => vehicle.summary()).then((summary) => summary.vin === vin),
    data: await call(() => vehicle.data({ endpoints: ['location_data'] })).then(
      (document) => 'location_data' in document,
    ),
    history: await call(() => vehicle.chargeHistory()).then((history) => typeof history),
    image: await call(() => vehicle.image()).then(({ bytes }) => bytes.length > 0),
    site: await call(() => site.siteInfo()).then((info) => 'components' in Object(info)),
    live: await call(() => site.liveStatus()).then((status) => 'wall_connectors' in Object(status)),
    ...(await streamed(client, controls, vin)),
    refilled: await call(() => refilled(client, vin)),
    elsewhere: await call(() => codeOf(firstOf(client, '0FL3ETX00X0000000'))),
    aborted: await aborted(client, vin),
    moved: await once(() => codeOf(client.vehicle('MOVED').summary())),
    gone: await codeOf(createClient({ baseUrl: 'http://127.0.0.1:9', apiKey, log, retry: { attempts: 1 } }).products()),
    local: await codeOf(client.webhook.set({ url: 'https://[::ffff:7f00:1]/', format: 'service' })),
  }
  await controls.sleep(vin)
  const asleep = await call(() => codeOf(vehicle.data()))
  const stopped = await call(() => config.stop()).then(() => codeOf(config.get()))
  await controls.failNothing()
  return { ...seen, asleep, stopped }
}

/** After a retry the service can find that nothing changes any more, so the count says nothing here. */
const shown = ({ updatedVehicles, skipped }: ConfigChange): unknown => [typeof updatedVehicles, skipped]

/** Handles a stream that fails after the first message, and whose connections end all the time. */
async function streamed(client: Client, controls: Controls, vin: string): Promise<Record<string, unknown>> {
  const handled: unknown[] = []
  const gaps: string[] = []
  let waiting: { readonly value: number; readonly done: () => void } | undefined
  const receiver = createReceiver({ secret: false }).on('data', ({ data, meta }) => {
    const value = data.Odometer
    if (meta.changed !== undefined && !meta.changed.includes('Odometer')) return
    if (typeof value !== 'number' || value < 900_000) return
    handled.push(value)
    if (value === waiting?.value) waiting.done()
  })
  const stream = client.stream(vin, {
    topics: ['state', 'data'],
    heartbeatTimeoutMs: 1_000,
    onResumed: ({ reason }) => gaps.push(reason),
  })
  const ended = receiver.from(stream).then(
    () => 'ended',
    (error: unknown) => String(error),
  )
  const sent = async (value: number): Promise<void> => {
    const seen = new Promise<void>((done) => (waiting = { value, done }))
    await controls.send({ vin, data: { Odometer: value }, createdAt: new Date().toISOString() })
    await seen
  }
  await sent(900_001)
  await controls.failAnswers()
  await controls.failStream()
  for (const value of [900_002, 900_003]) await sent(value)
  // Longer than a connection of this sandbox lasts.
  await new Promise((resolve) => setTimeout(resolve, 2_500))
  await sent(900_004)
  await receiver.drain()
  return { handled, gaps, ended: await ended }
}

async function refilled(client: Client, vin: string): Promise<readonly string[]> {
  const vins: string[] = []
  for await (const event of client.refill({ vin })) vins.push(event.vin === vin ? event.topic : 'another vehicle')
  return vins
}

/** The topic of the last event of a stream that is aborted at its first. */
async function aborted(client: Client, vin: string): Promise<string> {
  const controller = new AbortController()
  let last = 'nothing'
  for await (const event of client.stream(vin, { signal: controller.signal, topics: ['state'] })) {
    last = event.topic
    setTimeout(() => controller.abort(), 5)
  }
  return last
}

async function firstOf(client: Client, vin: string): Promise<unknown> {
  for await (const event of client.stream(vin)) return event.topic
  return 'nothing'
}

/** Runs the journey in these modes, one after the other, each with a vehicle of its own. */
export async function everyMode(
  baseUrl: string,
  apiKey: string,
  modes: readonly FailureMode[],
): Promise<Readonly<Record<string, unknown>>> {
  const seen: Record<string, unknown> = {}
  for (const [number, mode] of modes.entries()) {
    seen[mode] = await sandboxJourney(baseUrl, apiKey, mode, number).catch((error: unknown) => String(error))
  }
  return seen
}
