import type { DatabaseSync } from 'node:sqlite'
import { createOnce, type Once } from '../../src/once.ts'

/** `createOnce` on a connection to SQLite: one transaction after the other. Handlers get `transaction`. */
export function onceIn<Transaction>(db: DatabaseSync, transaction: Transaction): Once<Transaction> {
  let last: Promise<unknown> = Promise.resolve()
  const once = createOnce<Transaction>({
    database: 'sqlite',
    run: async (_, sql, values) => Number(db.prepare(sql).run(...values).changes),
    transaction(work) {
      const done = last.then(async () => {
        db.exec('BEGIN IMMEDIATE')
        try {
          await work(transaction)
          db.exec('COMMIT')
        } finally {
          if (db.isTransaction) db.exec('ROLLBACK')
        }
      })
      last = done.catch(() => {})
      return done
    },
  })
  for (const sql of once.schema) db.exec(sql)
  return once
}
