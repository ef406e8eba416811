/* Each row of the semantics of episodes, on a real server. The receiver's clock is that of the test, and that of the inbox is the real one. */
import type { InboxFactory } from 'fleethook/extend'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { describe } from 'vitest'
import { systemClock } from '../../src/base/clock.ts'
import { hasPostgres } from '../once/servers.ts'
import { episodeRows } from '../when/episodes-rows.ts'
import type { Place } from '../when/episodes-scene.ts'
import { sceneOfFile } from './scene.ts'

describe.skipIf(!hasPostgres)('on Postgres', () => {
  const scene = sceneOfFile()
  let number = 0
  /** Of all rows: each of its own would take all connections of the server. */
  let pool: ReturnType<typeof scene.newPool> | undefined

  async function place(): Promise<Place> {
    const schema = `episodes${(number += 1)}`
    await scene.prepare(schema)
    const own = (pool ??= scene.newPool(20))
    let statements = 0
    let starting = 0
    const db = {
      async query(text: string, values?: unknown[]) {
        statements += 1
        try {
          return await own.query(text, values)
        } finally {
          statements -= 1
        }
      },
    }
    const next = (): InboxFactory => (settings) => {
      const inbox = postgresInbox({ db, schema, leaseMs: 1_500 })({ ...settings, clock: systemClock })
      const open = inbox.open.bind(inbox)
      inbox.open = async (options) => {
        const opened = await open(options)
        starting += 1
        // Its timers start then, some real time after it is open.
        void opened.gapsKnown?.then(() => (starting -= 1))
        return opened
      }
      return inbox
    }
    return {
      next,
      async pending() {
        const { rowCount } = await own.query(`SELECT FROM ${schema}.waiting`)
        return starting + statements + (rowCount ?? 0)
      },
    }
  }

  episodeRows('and a receiver on a clock of the test', place, true, false)
})
