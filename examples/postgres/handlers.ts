import type { Receiver } from 'fleethook'
import type { PostgresInbox, RunTransaction } from 'fleethook/inbox/postgres'

/** What a handler needs of a transaction. */
interface Transaction {
  query(sql: string, values: unknown[]): Promise<unknown>
}

/** Each handler in `exactly` has a name, which must stay the same. Its rows are written once, also when its process is killed. */
export function addHandlers(
  receiver: Receiver,
  inbox: PostgresInbox,
  transaction: RunTransaction<Transaction>,
): Receiver {
  const exactly = inbox.exactlyOnce(transaction)
  return receiver
    .on(
      'data',
      exactly('readings', ({ vin, at, data }, _context, tx) =>
        // One statement for all fields of the message.
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
