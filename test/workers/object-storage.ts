import { DatabaseSync } from 'node:sqlite'
import type { ObjectStorage } from 'fleethook/inbox/durable-object'

/** The storage of a Durable Object, in memory, with alarms that the test sets. */
export function objectStorage(
  setAlarm: (atMs: number) => Promise<void> = async () => {},
  deleteAlarm: () => Promise<void> = async () => {},
): ObjectStorage {
  const db = new DatabaseSync(':memory:')
  return {
    sql: {
      exec: (query, ...bindings) => {
        // `prepare` takes one statement, and the platform several.
        if (bindings.length === 0 && query.includes(';')) db.exec(query)
        if (bindings.length === 0 && query.includes(';')) return { toArray: () => [] }
        const rows = db.prepare(query).all(...bindings) as Record<string, string | number | null>[]
        return { toArray: () => rows }
      },
    },
    transactionSync(change) {
      db.exec('BEGIN')
      try {
        const result = change()
        db.exec('COMMIT')
        return result
      } catch (error) {
        db.exec('ROLLBACK')
        throw error
      }
    },
    sync: async () => {},
    setAlarm,
    deleteAlarm,
  }
}
