/* Where receivers on a clock of the test keep their messages: the inbox itself goes by the real clock. */
import type { InboxFactory } from 'fleethook/extend'
import { postgresInbox } from 'fleethook/inbox/postgres'
import type pg from 'pg'
import { systemClock } from '../../src/base/clock.ts'

export interface PostgresPlace {
  /** The inbox of the next process. */
  next(): InboxFactory
  /** The process before is gone from now on, with all that it has in hand. */
  crash(): Promise<void>
  /** What is under way by the real clock. Until it is none, the clock of the test stands still. */
  pending(): Promise<number>
}

export function postgresPlace(pool: pg.Pool, schema: string): PostgresPlace {
  let life = { isOver: false, statements: 0, starting: 0 }
  return {
    next() {
      const mine = (life = { isOver: false, statements: 0, starting: 0 })
      const db = {
        async query(text: string, values?: unknown[]) {
          if (mine.isOver) throw new Error('The process is gone.')
          mine.statements += 1
          try {
            return await pool.query(text, values)
          } finally {
            mine.statements -= 1
          }
        },
      }
      const create = postgresInbox({ db, schema, leaseMs: 1_500 })
      return (settings) => {
        const inbox = create({ ...settings, clock: systemClock })
        const open = inbox.open.bind(inbox)
        inbox.open = async (options) => {
          const opened = await open(options)
          mine.starting += 1
          // The timers of its receiver start then.
          void opened.gapsKnown?.then(() => (mine.starting -= 1))
          return opened
        }
        return inbox
      }
    },
    async crash() {
      life.isOver = true
      // Nobody waits for the end of its lease.
      await pool.query(`UPDATE ${schema}.process SET until = clock_timestamp() - interval '1 s'`)
    },
    async pending() {
      const { rowCount } = await pool.query(`SELECT FROM ${schema}.waiting`)
      return life.starting + life.statements + (rowCount ?? 0)
    },
  }
}
