// A receiver whose handler for `data` fails for as long as a file is there, on the runtime that the first argument names.
import { existsSync } from 'node:fs'
import { sqliteInbox } from '../../adapters/inbox/sqlite.ts'
import { createReceiver } from '../../src/index.ts'

const adapter: typeof import('../../adapters/node.ts') = await import(`../../adapters/${process.argv[2]}.ts`)
const { INBOX: path = '', BROKEN: broken = '', WEBHOOK_SECRET: secret } = process.env

const receiver = createReceiver({
  secret,
  inbox: sqliteInbox({ path }),
  retry: { attempts: 1 },
  observe: { dead: ({ event }) => console.log('vin' in event ? `dead ${event.vin}` : 'dead') },
}).on('data', (event, { delivery }) => {
  if (existsSync(broken)) throw new Error('the database is gone')
  console.log(`handled ${event.vin} ${event.data.Odometer} ${delivery.replayed ? 'replayed' : 'live'}`)
})
const { closed } = await adapter.serve(receiver, { port: 0, hostname: '127.0.0.1' })
await closed
