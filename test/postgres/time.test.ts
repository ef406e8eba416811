/* Rules about time over restarts, as on a file: see `test/when/time-fleet.test.ts` and `port.test.ts`. The receiver's clock is that of the test, and that of the inbox is the real one. */
import fc from 'fast-check'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { describe, expect, test } from 'vitest'
import { systemClock } from '../../src/base/clock.ts'
import { inForm } from '../form.ts'
import { hasPostgres } from '../once/servers.ts'
import { expected, fleets, type Place, told } from '../when/fleet-time.ts'
import { portRows } from '../when/port-rows.ts'
import { sceneOfFile } from './scene.ts'

describe.skipIf(!hasPostgres)('on Postgres', () => {
  const scene = sceneOfFile()
  let schemas = 0
  let pool: ReturnType<typeof scene.newPool> | undefined

  async function onServer(): Promise<Place> {
    const schema = `fleet${(schemas += 1)}`
    await scene.prepare(schema)
    const own = (pool ??= scene.newPool(20))
    let life = { isOver: false, puts: 0 }
    return {
      beginsLate: true,
      next() {
        const mine = (life = { isOver: false, puts: 0 })
        const query = async (text: string, values?: unknown[]) => {
          if (mine.isOver) throw new Error('The process is gone.')
          const puts = text.includes('INSERT INTO') ? 1 : 0
          mine.puts += puts
          return own.query(text, values).finally(() => (mine.puts -= puts))
        }
        const create = postgresInbox({ db: { query }, schema, leaseMs: 1_500 })
        return (settings) => create({ ...settings, clock: systemClock })
      },
      async crash() {
        life.isOver = true
        // Nobody waits for the end of its lease.
        await own.query(`UPDATE ${schema}.process SET until = clock_timestamp() - interval '1 s'`)
      },
      async pending() {
        const { rowCount } = await own.query(`SELECT FROM ${schema}.waiting`)
        return life.puts + (rowCount ?? 0)
      },
    }
  }

  portRows(onServer)

  test('every occurrence that all messages in the order of the vehicle show is told once, before newer messages, over restarts and take-overs', { timeout: 3_600_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(fleets, async (fleet) => {
        expect(await told(fleet, await onServer())).toEqual(expected(fleet))
      }),
      { endOnFailure: true, numRuns: inForm({ full: 5, long: 300 }) },
    )
  }) // prettier-ignore
})
