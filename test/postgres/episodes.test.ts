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
    const db = {
      async query(text: string, values?: unknown[]) {
        const isPut = text.includes('INSERT INTO')
        if (isPut) statements += 1
        try {
          return await own.query(text, values)
        } finally {
          if (isPut) statements -= 1
        }
      },
    }
    const inbox = (): InboxFactory => {
      const create = postgresInbox({ db, schema, leaseMs: 1_500 })
      return (settings) => create({ ...settings, clock: systemClock })
    }
    return {
      next: inbox,
      async pending() {
        const { rowCount } = await own.query(`SELECT FROM ${schema}.waiting`)
        return statements + (rowCount ?? 0)
      },
    }
  }

  episodeRows('and a receiver on a clock of the test', place, true, false)
})
