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
      exactly('readings', ({ id, vin, at, data }, _context, tx) =>
        // One statement for all fields of the message. A message without fields writes no row.
        tx.query(
          `INSERT INTO readings (id, vin, at, field, value) SELECT $1, $2, $3, key, value FROM json_each($4)
           ON CONFLICT DO NOTHING`,
          [id, vin, at, JSON.stringify(data)],
        ),
      ),
    )
    .on('gap', (event) => console.warn('messages may be missing', event.vin, event.reason, event.from, event.to))
}

/** The key is only for a message that was sent twice, which has the same id. No message is written twice. */
export const table = `
  CREATE TABLE IF NOT EXISTS readings (
    id text, vin text NOT NULL, at timestamptz NOT NULL, field text, value json NOT NULL,
    PRIMARY KEY (id, field)
  );
  CREATE INDEX IF NOT EXISTS readings_by_vehicle ON readings (vin, field, at);`
