/**
 * Measures the memory of a backlog in a durable inbox: an idle receiver, and the same one with many messages waiting in its
 * SQLite inbox, whose handlers never finish. Then the same after a restart.
 *
 *     npm run bench -- waiting --messages 500000 --vins 1000
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { sqliteInbox } from '../adapters/inbox/sqlite.ts'
import { createReceiver, type Receiver } from '../src/index.ts'
import { corpus } from './corpus.ts'
import { table } from './table.ts'

const { values } = parseArgs({
  options: { messages: { type: 'string', default: '500000' }, vins: { type: 'string', default: '1000' } },
})
const messages = Number(values.messages)
const vins = Number(values.vins)
const budget = 1.2
/** The most messages that a durable inbox reads ahead. */
const kept = 10_000
const bodyMessages = 500
const secret = 'bench-0f6f2a7d8c1e4b9fa35d'

setFlagsFromString('--expose-gc')
const collect: (how: object) => void = runInNewContext('gc')

interface Weight {
  readonly name: string
  readonly heapBytes: number
  /** The memory before and after a full garbage collection. */
  readonly busyBytes: number
  readonly residentBytes: number
}

async function weigh(name: string): Promise<Weight> {
  const busyBytes = process.memoryUsage().rss
  for (let pass = 0; pass < 5; pass++) {
    collect({ type: 'major', execution: 'sync', flavor: 'last-resort' })
    await sleep(100)
  }
  const { heapUsed, external, rss } = process.memoryUsage()
  return { name, heapBytes: heapUsed + external, busyBytes, residentBytes: rss }
}

const folder = mkdtempSync(join(tmpdir(), 'fleethook-waiting-'))
const path = join(folder, 'inbox.db')
const make = (): Receiver =>
  createReceiver({
    secret,
    inbox: sqliteInbox({ path }),
    limits: { pendingMessages: 2 * messages },
    timeoutMs: 3_600_000,
  }).on('data', () => new Promise<void>(() => {}))
const texts = corpus({ messages: 5000, vins, format: 'service' })

/** The corpus has at most one vehicle for each message. More vehicles get new names. */
function bodyOf(from: number): string {
  const parts = Array.from({ length: bodyMessages }, (_, n) => {
    const message: Record<string, unknown> = JSON.parse(texts[(from + n) % texts.length] ?? '{}')
    return JSON.stringify({ ...message, vin: `WAITING${String((from + n) % vins).padStart(10, '0')}` })
  })
  return `[${parts.join(',')}]`
}

async function fill(receiver: Receiver, upTo: number): Promise<void> {
  for (let from = receiver.stats().received; from < upTo; from += bodyMessages) {
    const { status } = await receiver.accept({ authorization: secret, body: bodyOf(from) })
    if (status !== 200) throw new Error(`An answer was ${status}.`)
  }
}

try {
  // Warm up, so that compiled code and caches do not count as memory of waiting messages.
  const warm = createReceiver({ secret }).on('data', () => {})
  for (let from = 0; from < 20_000; from += bodyMessages) {
    await warm.accept({ authorization: secret, body: bodyOf(from) })
    while (warm.stats().pending.messages > 0) await sleep(1)
  }
  const receiver = make()
  await receiver.open()
  const idle = await weigh('idle')
  await fill(receiver, messages)
  const weights = [idle, await weigh(`${messages} waiting, ${vins} VINs`)]
  await receiver.drain({ deadlineMs: 0 })
  const restarted = make()
  const began = performance.now()
  await restarted.open()
  // It has read as many as it keeps in memory. The others stay on the disk.
  while (restarted.stats().recovered < Math.min(messages, kept)) await sleep(10)
  const seconds = (performance.now() - began) / 1000
  weights.push(await weigh(`found by the next receiver in ${seconds.toFixed(1)} s`))
  console.log(
    table(
      ['receiver', 'heap and external MB', 'ratio', 'resident MB', `ratio, budget ${budget}`, 'before collecting MB'],
      weights.map(({ name, heapBytes, residentBytes, busyBytes }) => [
        name,
        (heapBytes / 1e6).toFixed(1),
        (heapBytes / idle.heapBytes).toFixed(2),
        (residentBytes / 1e6).toFixed(1),
        (residentBytes / idle.residentBytes).toFixed(2),
        (busyBytes / 1e6).toFixed(1),
      ]),
    ),
  )
  await restarted.drain({ deadlineMs: 0 })
} finally {
  rmSync(folder, { recursive: true })
}
process.exit(0)
