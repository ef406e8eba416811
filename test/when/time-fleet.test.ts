import fc from 'fast-check'
import { cpSync } from 'node:fs'
import { join } from 'node:path'
import { memoryInbox } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { expect, test } from 'vitest'
import { inForm } from '../form.ts'
import { expected, fleets, type Place, told } from './fleet-time.ts'
import { untidied } from './stepping.ts'
import { newFolder } from '../folder.ts'

const folder = newFolder('fleet')
let files = 0

/** After a crash, the next process has a copy of the file as it was then. */
function inFile(): Place {
  let path = join(folder, `${(files += 1)}`)
  return {
    next: () => untidied(sqliteInbox({ path: join(path, 'inbox.db') })),
    crash() {
      const copy = `${path}-copy`
      cpSync(path, copy, { recursive: true, filter: (name) => !name.endsWith('.sock') })
      path = copy
    },
  }
}

test(
  'every occurrence that all messages in the order of the vehicle show is told once, before newer messages, over restarts',
  { timeout: 600_000 },
  async () => {
    await fc.assert(
      fc.asyncProperty(fleets, async (fleet) => {
        expect(await told(fleet, inFile())).toEqual(expected(fleet))
      }),
      { endOnFailure: true, numRuns: inForm({ short: 12, full: 60, long: 3_000 }) },
    )
  },
)

test('the same in memory, without restarts', { timeout: 600_000 }, async () => {
  await fc.assert(
    fc.asyncProperty(fleets, async ({ sent, end }) => {
      const fleet = { sent, end, away: [] }
      expect(await told(fleet, { next: () => memoryInbox(), crash() {} })).toEqual(expected(fleet))
    }),
    { endOnFailure: true, numRuns: inForm({ short: 20, full: 200, long: 10_000 }) },
  )
})
