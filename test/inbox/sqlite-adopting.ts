// A process that starts an inbox which adopts others, and says when it is done. A test kills it before that.
import process from 'node:process'
import { sqliteInbox } from '../../adapters/inbox/sqlite.ts'
import { systemClock } from '../../src/base/clock.ts'

const [path = '', adopt = ''] = process.argv.slice(2)
const silent = (): void => {}
const inbox = sqliteInbox({ path, adopt, waitMs: 0 })({
  pendingMessages: undefined,
  pendingBytes: undefined,
  overflow: 'refuse',
  clock: systemClock,
  log: { debug: silent, info: silent, warn: silent, error: silent },
  onConflated: silent,
  onFailure: silent,
  onCapacity: silent,
})
process.stdout.write('starts\n')
await inbox.open()
process.stdout.write('done\n')
process.kill(process.pid, 'SIGKILL')
