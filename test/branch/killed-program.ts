/** A receiver with two branches that is about to be killed: `crm` is down, unless it is told that it is up. Writes a line for each message that is done. */
import { appendFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { sqliteInbox } from '../../adapters/inbox/sqlite.ts'
import { branch } from '../../src/branch.ts'
import { createReceiver, Retry } from '../../src/index.ts'

const [folder = '', from = '0', count = '0', how = 'down', thread = ''] = process.argv.slice(2)
const silent = { debug() {}, info() {}, warn() {}, error() {} }
const done =
  (who: string) =>
  ({ vin, data }: { readonly vin: string; readonly data: { readonly Odometer?: number | null } }): void =>
    appendFileSync(join(folder, `${who}.txt`), `${vin} ${data.Odometer}\n`)
const inbox = sqliteInbox({ path: join(folder, 'inbox.db'), thread: thread === 'thread' })
const receiver = createReceiver({ secret: false, log: silent, inbox }).on('data', done('receiver'))
branch(receiver, { name: 'staging' }).on('data', done('staging'))
branch(receiver, { name: 'crm' }).on('data', (event) => {
  if (how === 'down') throw new Retry(60_000)
  done('crm')(event)
})
await receiver.open()
for (let n = Number(from); n < Number(from) + Number(count); n += 1) {
  const body = { vin: `V${n % 10}`, createdAt: new Date().toISOString(), data: { Odometer: n } }
  const { status } = await receiver.accept({ authorization: undefined, body })
  if (status !== 200) throw new Error(`It answered ${status}.`)
  console.log(n)
}
const { stats } = receiver
const waits = (): number => {
  const { pending, branches = {} } = stats()
  return pending.messages + Object.values(branches).reduce((sum, each) => sum + each.pending.messages, 0)
}
while (how === 'up' && waits() > 0) await new Promise((resolve) => setTimeout(resolve, 10))
if (how === 'up') await receiver.drain()
