// A process with an inbox: prints what it found, puts one message, and closes the inbox when a line on its standard input
// tells it to.
import process from 'node:process'
import { sqliteInbox } from '../../adapters/inbox/sqlite.ts'
import { readsNothing } from '../../adapters/inbox/forwarding.ts'
import { FleethookError, withHint } from '../../src/base/errors.ts'
import { systemClock } from '../../src/base/clock.ts'
import { DeliveryIds } from '../../src/testing/kept-message.ts'

const [path = '', waitMs = '0', thread = ''] = process.argv.slice(2)
const say = (word: string): void => void process.stdout.write(`${word}\n`)
const silent = (): void => {}
const ids = new DeliveryIds()

const inbox = sqliteInbox({ path, waitMs: Number(waitMs), ...(thread === 'thread' ? { thread: true } : {}) })({
  limits: { pendingMessages: undefined, pendingBytes: undefined },
  read: readsNothing,
  clock: systemClock,
  log: { debug: silent, info: silent, warn: () => say('waits'), error: silent },
  on: silent,
})

try {
  const { waiting, lastId, gaps = [] } = await inbox.open()
  if (lastId !== undefined) ids.follow(lastId)
  let count = 0
  for await (const page of waiting) count += page.length
  const now = Date.now()
  const text = '{"vin":"VIN"}'
  await inbox.put([{ id: ids.next(now), lane: 'VIN', receivedAt: now, door: 'root', kind: 'wire', text, bytes: 13 }])
  say(`has it: ${count} waited, ${gaps.map(({ reason }) => reason).join()}.`)
} catch (error) {
  say(error instanceof Error && 'code' in error ? `failed: ${String(error.code)}` : 'failed')
  if (error instanceof FleethookError) say(withHint(error))
}

// When the input ends without such a line, nothing is closed: the process ends because it has nothing left to do.
process.stdin.on('data', (data) => {
  if (String(data).includes('close')) void inbox.close()
})
