// A receiver whose handler ends its own process for the messages of the VINs that begin with K. The first process posts the messages.
import { appendFileSync, existsSync } from 'node:fs'
import process from 'node:process'
import { sqliteInbox } from '../../../adapters/inbox/sqlite.ts'
import { createReceiver } from '../../../src/index.ts'

export interface KillerSettings {
  readonly path: string
  /** The handler writes each run to it. */
  readonly journal: string
  readonly how: 'exit' | 'kill' | 'oom'
  /** How long the handler waits before it ends the process, in milliseconds. Default: it does not wait. */
  readonly afterMs?: number
  /** How long the handler takes for another message, in milliseconds. Default: it is synchronous. */
  readonly takesMs?: number
  /** Messages are handled in batches of this size. */
  readonly batch?: number
  readonly options?: object
  /** `VIN number`, in order of arrival. */
  readonly messages: readonly string[]
}

const { path, journal, how, afterMs, takesMs, batch, options, messages }: KillerSettings = JSON.parse(
  process.env['SETTINGS'] ?? '',
)
const silent = (): void => {}
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

function end(): void {
  if (how === 'exit') process.exit(7)
  if (how === 'kill') process.kill(process.pid, 'SIGKILL')
  for (const kept: unknown[] = []; ;) kept.push(Array.from({ length: 100_000 }, () => kept.length))
}

function handle(vins: readonly (readonly [string, unknown])[]): Promise<void> | void {
  for (const [vin, number] of vins) appendFileSync(journal, `${vin} ${String(number)}\n`)
  const isKiller = vins.some(([vin, number]) => vin.startsWith('K') && number === 2)
  const ms = isKiller ? afterMs : takesMs
  const run = (): void => {
    if (isKiller) end()
  }
  return ms === undefined ? run() : pause(ms).then(run)
}

const receiver = createReceiver({
  secret: false,
  inbox: sqliteInbox({ path }),
  log: { debug: silent, info: silent, warn: silent, error: silent },
  ...options,
})
if (batch === undefined) receiver.on('data', ({ vin, data }) => handle([[vin, data.Odometer]]))
else
  receiver.batch('data', { size: batch, withinMs: 20 }, (events) =>
    handle(events.map(({ vin, data }) => [vin, data.Odometer])),
  )
const isFirst = !existsSync(path)
await receiver.open()
if (isFirst)
  await receiver.accept({
    authorization: undefined,
    body: messages.map((text) => {
      const [vin, number] = text.split(' ')
      return { vin, createdAt: '2026-05-01T00:00:00Z', data: { Odometer: Number(number) } }
    }),
  })
while (receiver.stats().pending.messages > 0) await pause(5)
console.log(JSON.stringify(await Array.fromAsync(receiver.deadLetters.list())))
await receiver.drain()
