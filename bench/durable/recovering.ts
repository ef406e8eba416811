// One process of the recovery benchmark: fills an inbox and ends as in a crash, or handles the messages that it finds.
import { createReceiver, type Receiver } from '../../src/index.ts'
import { sqliteInbox } from '../../adapters/inbox/sqlite.ts'
import { corpus } from '../corpus.ts'

const [what = '', path = '', count = '0', vins = '1000'] = process.argv.slice(2)
const messages = Number(count)
const secret = 'bench-0f6f2a7d8c1e4b9fa35d'
const never = new Promise<never>(() => {})

/** The time since the start of the process, in milliseconds. */
const now = (): number => process.uptime() * 1000

const receiverWith = (handler: () => unknown): Receiver =>
  createReceiver({ secret, inbox: sqliteInbox({ path }), timeoutMs: 2_000_000_000 }).on('*', handler)

async function fill(): Promise<void> {
  const receiver = receiverWith(() => never)
  await receiver.open()
  const bodies = corpus({ messages: 20_000, vins: Number(vins), format: 'service' })
  for (let sent = 0; sent < messages; sent += 1000) {
    const answers = Array.from({ length: Math.min(1000, messages - sent) }, (_, n) =>
      receiver.accept({ authorization: secret, body: bodies[(sent + n) % bodies.length] }),
    )
    for (const { status } of await Promise.all(answers)) if (status !== 200) throw new Error(`An answer was ${status}.`)
  }
  process.kill(process.pid, 'SIGKILL')
}

async function handle(): Promise<object> {
  let handled = 0
  let firstMs = 0
  let peakBytes = 0
  const done = Promise.withResolvers<void>()
  const receiver = receiverWith(() => {
    handled += 1
    if (handled === 1) firstMs = now()
    if (handled === messages) done.resolve()
  })
  const watch = setInterval(() => (peakBytes = Math.max(peakBytes, process.memoryUsage().rss)), 20)
  await receiver.open()
  await done.promise
  const lastMs = now()
  clearInterval(watch)
  const { left, lost } = await receiver.drain()
  if (left + lost > 0) throw new Error(`${left} are left and ${lost} lost.`)
  return { firstMs, lastMs, peakBytes }
}

if (what === 'fill') await fill()
else {
  console.log(JSON.stringify(await handle()))
  process.exit()
}
