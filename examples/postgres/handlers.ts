import type { Receiver } from 'fleethook'
import type { ExactlyOnce } from 'fleethook/inbox/postgres'

/** What a handler needs of a transaction. */
interface Transaction {
  query(sql: string, values: unknown[]): Promise<unknown>
}

/** Each handler in `exactly` has a name, which must stay the same. Its rows are written once, also when its process is killed. */
export function addHandlers(receiver: Receiver, exactly: ExactlyOnce<Transaction>): Receiver {
  return receiver
    .on(
      'data',
      // Use `tx` for every statement: a second connection of the same pool would wait for itself.
      exactly('readings', ({ vin, at, data }, _context, tx) =>
        // One statement for all fields of the message. A message without fields writes no row.
        tx.query('INSERT INTO readings (vin, at, field, value) SELECT $1, $2, key, value FROM json_each($3)', [
          vin,
          at,
          JSON.stringify(data),
        ]),
      ),
    )
    .on('gap', (event) => console.warn('messages may be missing', event.vin, event.reason, event.from, event.to))
}

/** No key is needed: nothing is written twice. */
export const table = `
  CREATE TABLE IF NOT EXISTS readings (vin text NOT NULL, at timestamptz NOT NULL, field text NOT NULL, value json NOT NULL);
  CREATE INDEX IF NOT EXISTS readings_by_vehicle ON readings (vin, field, at);`
