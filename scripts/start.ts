// `npm start`: the whole mission on one screen. A sandbox plays the service, its simulated vehicles drive, charge
// and sleep, and a receiver handles what they send, in all three formats.
import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { styleText } from 'node:util'
import { servePage } from '../adapters/cli/inspect.ts'
import { serve } from '../adapters/node.ts'
import { sqliteInbox } from '../adapters/inbox/sqlite.ts'
import { createClient } from '../src/client.ts'
import type { WireTopic } from '../src/events/event.ts'
import { createReceiver, type Format, type FleetEvent, summarize, vehicles } from '../src/index.ts'
import { createOperatorApp } from '../src/operator/app.ts'
import { createSandbox } from '../src/sandbox.ts'
import { any, becomes, episode, growth, is, path, span } from '../src/when.ts'

const formats: readonly Format[] = ['service', 'vehicle_maker', 'event_collector']
const topics: readonly WireTopic[] = ['data', 'state', 'connectivity', 'vehicle_data', 'alerts', 'errors']
/** Long enough to watch, and an end for a run that nobody watches. */
const longestMs = 600_000
const workshopOpensAtSecond = 15

const trip = episode('trip', {
  during: any(is('Gear', 'D'), is('Gear', 'R'), is('Gear', 'N')),
  joins: { minutes: 3 },
  measures: { odometer: span('Odometer'), energy: span('EnergyRemaining'), route: path() },
})
const charge = episode('charge', {
  during: any(is('DetailedChargeState', 'Starting'), is('DetailedChargeState', 'Charging')),
  joins: { minutes: 15 },
  splits: is('DetailedChargeState', 'Disconnected'),
  measures: { percent: span('BatteryLevel'), ac: growth('ACChargingEnergyIn', { startsAt: 0 }) },
})

const secret = randomBytes(24).toString('hex')
const apiKey = randomBytes(24).toString('hex')

const inboxPath = process.env['FLEETHOOK_INBOX'] ?? 'data/inbox.db'
const hasEarlierRun = existsSync(inboxPath)

// 1. The receiver. Its 2xx means that the message is on the disk.
const startedAt = new Date()
const received = new Map<string, number>()
const handled = new Map<string, number>()
/** Messages of the last run that this one handled. */
let recovered = 0
/** Messages of this run that are dead letters: their ids. */
const dead = new Set<string>()
let states = 0
let isWorkshopOpen = false
const log = (message: string, { handler, attempt, reason }: Record<string, unknown> = {}): void =>
  print(
    'red',
    [message, handler && `${String(handler)}, attempt ${String(attempt)}`, reason].filter(Boolean).join(': '),
  )
const receiver = createReceiver({
  secret,
  inbox: sqliteInbox({ path: inboxPath }),
  parts: [vehicles({ fields: 'all' })],
  retry: { attempts: 3, minMs: 500 },
  log: { debug() {}, info() {}, warn: log, error: log },
  logErrorText: true,
  observe: {
    received: (messages) => {
      for (const { event } of messages) count(received, event)
    },
    settled({ id, event }) {
      if (event === undefined || event.topic === 'malformed' || event.topic === 'gap') return
      dead.delete(id)
      if (event.receivedAt < startedAt) recovered += 1
      else count(handled, event)
    },
    dead: ({ id, event }) => event.receivedAt >= startedAt && dead.add(id),
  },
})
  .on('*', (event) => {
    if (event.topic === 'alerts' || event.topic === 'errors') console.log(styleText('yellow', summarize(event)))
    else console.log(summarize(event))
  })
  // Every third write fails, and its retry works.
  .on('state', function saveState(_event, { delivery }) {
    states += delivery.attempt === 1 ? 1 : 0
    if (delivery.attempt === 1 && states % 3 === 0) throw new Error('The database is busy.')
  })
  // The first alert comes too early, and its replay works.
  .on('alerts', function bookWorkshop() {
    if (!isWorkshopOpen) throw new Error('The workshop is closed.')
  })
  .when(becomes('Locked', false), function greet({ vin }) {
    print('cyan', `${''.padEnd(11)} ${vin} rule      Locked becomes false`)
  })
  // Each is told when it is over, and again when something late corrects it.
  .when(trip, function writeTrip({ vin, change: { odometer, energy, revision, revoked, durationMs } }) {
    const values = [
      minutes(durationMs),
      grown(odometer.from, odometer.to, 'miles'),
      grown(energy.to, energy.from, 'kWh'),
    ]
    print('cyan', `${''.padEnd(11)} ${vin} trip      ${revoked ? 'revoked' : values.join(', ')}${corrected(revision)}`)
  })
  .when(charge, function writeCharge({ vin, change: { percent, ac, revision, revoked, durationMs } }) {
    const values = [minutes(durationMs), `${percent.from ?? '?'} to ${percent.to ?? '?'} %`, grown(0, ac, 'kWh')]
    print('cyan', `${''.padEnd(11)} ${vin} charge    ${revoked ? 'revoked' : values.join(', ')}${corrected(revision)}`)
  })
const server = await serve(receiver, { port: Number(process.env['PORT'] ?? 0), announce: false, signals: false })
const page = await servePage(createOperatorApp(receiver).fetch)

// 2. The service: a sandbox with vehicles that wake up now.
const sandbox = createSandbox({
  apiKey,
  vehicles: 10,
  allowLocal: true,
})
const inProcess = async (url: string, init?: RequestInit): Promise<Response> => sandbox.fetch(new Request(url, init))
const baseUrl = 'https://sandbox.example.com'
const client = createClient({ baseUrl, apiKey, fetch: inProcess })
const vins = (await client.products()).flatMap(({ product_type: type, product_id: id }) =>
  type === 'vehicle' ? [id] : [],
)
const fields = {
  BatteryLevel: { interval_seconds: 30 },
  Gear: { interval_seconds: 1 },
  VehicleSpeed: { interval_seconds: 5, minimum_delta: 5 },
  DetailedChargeState: { interval_seconds: 1 },
  ACChargingPower: { interval_seconds: 20, minimum_delta: 0.5 },
  Locked: { interval_seconds: 1 },
  Location: { interval_seconds: 15, minimum_delta: 50 },
  Odometer: { interval_seconds: 30 },
  EnergyRemaining: { interval_seconds: 30 },
  ACChargingEnergyIn: { interval_seconds: 30 },
}

// 3. What happens, by seconds from the start. The webhook's format changes every four seconds.
const [garage, ill, faulty, sleeper] = vins.slice(-4)
const setFormat = (format: Format) => () =>
  client.webhook.set({ url: server.url, format, auth: secret }, { allowLocal: true })
const tell = (path: string, body: () => object) => () =>
  inProcess(`${baseUrl}/sandbox${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${apiKey}` },
    body: JSON.stringify(body()),
  })
const now = (): string => new Date().toISOString()
/** What a vehicle did before it had a network: it drove and charged, and uploads that now. Each field has its own message. */
const uploads = (vin: string | undefined): (() => Promise<void>) => {
  const nowMs = Date.now()
  const createdAt = (minutesAgo: number): string => new Date(nowMs - minutesAgo * 60_000).toISOString()
  // At once, so that nothing that it sends later comes in between.
  return async () => {
    await Promise.all(
      morning.map(([minutesAgo, data]) => tell('/messages', () => ({ vin, createdAt: createdAt(minutesAgo), data }))()),
    )
  }
}
const morning: readonly (readonly [minutesAgo: number, data: object])[] = [
  [200, { Gear: 'P' }],
  [200, { DetailedChargeState: 'Disconnected' }],
  [199, { Odometer: 18_204.3 }],
  [199, { EnergyRemaining: 51.2 }],
  [190, { Gear: 'D' }],
  [160, { Gear: 'P' }],
  [189, { Location: { latitude: 45.07, longitude: 7.687 } }],
  [180, { Location: { latitude: 45.112, longitude: 7.72 } }],
  [170, { Location: { latitude: 45.13, longitude: 7.79 } }],
  [161, { Location: { latitude: 45.101, longitude: 7.86 } }],
  [159, { Odometer: 18_225.9 }],
  [159, { EnergyRemaining: 45.1 }],
  [158, { BatteryLevel: 60.1 }],
  [150, { DetailedChargeState: 'Charging' }],
  [40, { DetailedChargeState: 'Complete' }],
  [39.5, { ACChargingEnergyIn: 16.2 }],
  [39, { BatteryLevel: 80 }],
  [38, { DetailedChargeState: 'Disconnected' }],
]
const earlierRun = `
The inbox also has what earlier runs left: their dead letters, and a gap since the last one ended.
To begin afresh, stop and delete ${inboxPath}.
`
const pressureLow = { name: 'TPMS_a101_pressureLow', startedAt: now(), audiences: ['Customer', 'Service'] }
const backpressure = { name: 'stream_backpressure', tags: { network: 'cellular' } }
const timetable: readonly (readonly [second: number, act: () => Promise<unknown>])[] = [
  ...Array.from({ length: longestMs / 4_000 }, (_, turn) => {
    const format = formats[turn % formats.length] ?? 'service'
    return [4 * turn, setFormat(format)] as const
  }),
  [3, tell(`/vehicles/${sleeper}/sleep`, () => ({}))],
  [4, uploads(garage)],
  [6, tell('/messages', () => ({ vin: ill, alerts: [pressureLow] }))],
  [10, tell('/messages', () => ({ vin: faulty, errors: [backpressure] }))],
  [14, tell(`/vehicles/${sleeper}/wake`, () => ({}))],
  [workshopOpensAtSecond, async () => (isWorkshopOpen = true)],
  [17, tell('/messages', () => ({ vin: ill, alerts: [{ ...pressureLow, endedAt: now() }] }))],
]

console.log(`The receiver listens on

  ${server.url}

and handles what ${vins.length} simulated vehicles send, in all three formats. Ctrl+C stops.
The inspector shows them at

  ${page.url}

The first alert becomes a dead letter. From ${workshopOpensAtSecond} seconds on, the inspector can replay it.
A time in parentheses is the vehicle's own clock. After waking, some are minutes ahead.
${hasEarlierRun ? earlierRun : ''}
${styleText('dim', 'handled  (its time)  vehicle           format    topic')}`)
await setFormat('service')()
await Promise.all(vins.map((vin) => client.config(vin).replace({ fields })))
const timers = timetable.map(([second, act]) => setTimeout(() => void act().catch(fail), second * 1_000))
timers.push(setTimeout(stop, longestMs))

// 4. Ctrl+C: first who sends stops, then who receives.
let stopping = false
function stop(): void {
  if (stopping) process.exit(130)
  stopping = true
  void finish()
}
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, stop)
// The reader of a pipe is gone.
process.stdout.on('error', stop)

async function finish(): Promise<void> {
  for (const timer of timers) clearTimeout(timer)
  await sandbox.close()
  await page.close()
  const { left, lost } = await server.close()
  const sums = `received ${sum(received)}, handled ${sum(handled)}, dead letters ${dead.size}, left ${left}, lost ${lost}`
  console.log(`\n${table()}\n\n${sums}`)
  if (recovered > 0) console.log(`recovered from the last run and handled: ${recovered}`)
}
function fail(error: unknown): void {
  console.error(error)
  process.exitCode = 1
  if (!stopping) stop()
}

const cell = (format: Format | null, topic: string): string => `${topic} ${format}`
const sum = (counts: ReadonlyMap<string, number>): number => [...counts.values()].reduce((all, each) => all + each, 0)

function count(counts: Map<string, number>, { format, topic }: FleetEvent): void {
  counts.set(cell(format, topic), (counts.get(cell(format, topic)) ?? 0) + 1)
}

const minutes = (ms: number): string => `${Math.round(ms / 60_000)} min`
const corrected = (revision: number): string => (revision > 1 ? `, corrected (${revision})` : '')

/** What is not known is a question mark, and never 0. */
function grown(from: number | null, to: number | null, unit: string): string {
  return `${from === null || to === null ? '?' : (to - from).toFixed(1)} ${unit}`
}

function print(color: 'red' | 'cyan', text: string): void {
  console.log(styleText(color, `${new Date().toISOString().slice(11, 19)} ${text}`.slice(0, 100)))
}

/** What was handled of what was received, by topic and format. */
function table(): string {
  const widths = [12, ...formats.map(({ length }) => Math.max(length, 12))]
  const row = (cells: readonly string[]): string =>
    cells
      .map((text, column) => (column === 0 ? text.padEnd(widths[0] ?? 0) : text.padStart(widths[column] ?? 0)))
      .join('  ')
  const rows = topics.map((topic) =>
    row([
      topic,
      ...formats.map(
        (format) => `${handled.get(cell(format, topic)) ?? 0} of ${received.get(cell(format, topic)) ?? 0}`,
      ),
    ]),
  )
  return [styleText('dim', row(['handled', ...formats])), ...rows].join('\n')
}
