/** Posts to a receiver with a branch, whose file may be in the thread of the receiver, and prints the time of the slowest of four answers, in milliseconds. */
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { sqliteInbox } from '../../../adapters/inbox/sqlite.ts'
import { branch } from '../../../src/branch.ts'
import { createReceiver } from '../../../src/index.ts'

const [fast = '', slow = '', thread] = process.argv.slice(2)
const silent = { debug() {}, info() {}, warn() {}, error() {} }
const receiver = createReceiver({ secret: false, log: silent, inbox: sqliteInbox({ path: join(fast, 'inbox.db') }) })
receiver.on('data', () => {})
const own = thread === 'same' ? { thread: false } : {}
const crm = branch(receiver, { name: 'crm', inbox: sqliteInbox({ path: join(slow, 'crm.db'), ...own }) })
crm.on('data', () => {})
await receiver.open()
await crm.open()
const tookMs: number[] = []
for (let n = 0; n < 30; n += 1) {
  await setTimeout(20)
  const startedMs = performance.now()
  const body = { vin: `V${n % 20}`, createdAt: new Date().toISOString(), data: { Odometer: n } }
  await receiver.accept({ authorization: undefined, body })
  tookMs.push(performance.now() - startedMs)
}
tookMs.sort((one, other) => one - other)
console.log(tookMs[Math.floor(tookMs.length * 0.75)])
process.exit()
