/* Rules about time over restarts, as on a file: see `test/when/time-fleet.test.ts` and `port.test.ts`. The receiver's clock is that of the test, and that of the inbox is the real one. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { inForm } from '../form.ts'
import { hasPostgres } from '../once/servers.ts'
import { expected, fleets, type Place, told } from '../when/fleet-time.ts'
import { portRows } from '../when/port-rows.ts'
import { postgresPlace } from './place.ts'
import { sceneOfFile } from './scene.ts'

describe.skipIf(!hasPostgres)('on Postgres', () => {
  const scene = sceneOfFile()
  let schemas = 0
  let pool: ReturnType<typeof scene.newPool> | undefined

  async function onServer(): Promise<Place> {
    const schema = `fleet${(schemas += 1)}`
    await scene.prepare(schema)
    const { next, crash, pending } = postgresPlace((pool ??= scene.newPool(20)), schema)
    return { next, crash, pending, beginsLate: true }
  }

  portRows(onServer)

  test(
    'every occurrence that all messages in the order of the vehicle show is told once, before newer messages, over restarts and take-overs',
    { timeout: 3_600_000 },
    async () => {
      await fc.assert(
        fc.asyncProperty(fleets, async (fleet) => {
          expect(await told(fleet, await onServer())).toEqual(expected(fleet))
        }),
        { endOnFailure: true, numRuns: inForm({ full: 5, long: 300 }) },
      )
    },
  )
})
