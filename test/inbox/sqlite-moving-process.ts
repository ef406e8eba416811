// A process that moves one inbox file into another. It reports when it begins, and a test kills it.
import process from 'node:process'
import { moveToFile } from './sqlite-store.ts'

const [from = '', to = ''] = process.argv.slice(2)
process.stdout.write('moves\n')
// The line is out before the move, which does not yield.
setImmediate(() => {
  moveToFile(from, to, { nowMs: Date.now() })
})
