import type { Receiver } from 'fleethook'
import type { Client } from 'fleethook/client'
import type { ExactlyOnce } from 'fleethook/inbox/postgres'
import type { EpisodeOccurrence } from 'fleethook/when'
import { charge, trip } from './episodes.ts'

/** What a handler needs of a transaction. */
interface Transaction {
  query(sql: string, values: unknown[]): Promise<unknown>
}

export const addHandlers = (receiver: Receiver, exactly: ExactlyOnce<Transaction>, client?: Client): Receiver =>
  receiver
    .when(
      trip,
      exactly('trips', ({ change: t }, _context, tx) =>
        save(tx, 'trips', t, {
          miles: difference(t.odometer.to, t.odometer.from),
          kwh: difference(t.energy.from, t.energy.to),
          from_place: t.place.from,
          to_place: t.place.to,
          route: t.route.points,
          doubts: doubtsOf(t, ['odometer', 'energy', 'place', 'route']),
        }),
      ),
    )
    .when(
      charge,
      exactly('charges', ({ change: c }, _context, tx) => {
        const { ac, dc } = c
        // With AC both counters run: what the socket gave, and what reached the battery. With DC only the second does. So never add them.
        const counters = ac ? ['ac'] : dc ? ['dc'] : ['ac', 'dc']
        return save(tx, 'charges', c, {
          kwh: ac === null || dc === null ? ac || dc || null : Math.max(ac, dc),
          percent_from: c.percent.from,
          percent_to: c.percent.to,
          place: c.place.from ?? c.place.to,
          at_home: c.atHome.from ?? c.atHome.to,
          doubts: doubtsOf(c, [...counters, 'percent']),
        })
      }),
    )
    .on(
      'data',
      { fields: ['BatteryLevel', 'Location'] },
      exactly('vehicles', ({ vin, at, receivedAt, data }, _context, tx) => {
        const values = [vin, at < receivedAt ? at : receivedAt, data.BatteryLevel, data.Location]
        return tx.query('SELECT save_vehicle($1, $2, $3, $4)', values)
      }),
    )
    .on('gap', async (gap, { signal }) => {
      console.warn('messages may be missing', gap.vin, gap.reason, gap.from, gap.to)
      const endpoints = ['charge_state', 'drive_state', 'location_data', 'vehicle_state']
      const onFailed = (vin: string, error: unknown) => console.warn('no document of', vin, String(error)) // it sleeps
      if (client !== undefined) await receiver.from(client.refill(gap, { endpoints, onFailed, signal }))
    })

/** A correction has the id of what it corrects. An older one, replayed days later, changes nothing: so one that is revoked stays as a row. */
function save(tx: Transaction, table: 'trips' | 'charges', episode: EpisodeOccurrence, measured: object) {
  const { id, revision, revoked, vin, startedAt, endedAt } = episode
  const row = { revision, revoked, vin, started: startedAt, ended: endedAt, ...measured }
  const columns = Object.keys(row).join(', ')
  const values = `SELECT ${columns} FROM json_populate_record(NULL::${table}, $2)`
  const sql = `INSERT INTO ${table} (id, ${columns}) SELECT $1, * FROM (${values}) AS new ON CONFLICT (id) DO UPDATE SET (${columns}) = (${values}) WHERE ${table}.revision < excluded.revision`
  return tx.query(sql, [id, JSON.stringify(row)])
}

const difference = (more: number | null, less: number | null) => (more === null || less === null ? null : more - less)

const doubtsOf = ({ acrossGap, cut, missing }: EpisodeOccurrence, matters: readonly string[]) => [
  ...(acrossGap ? ['messages may be missing'] : []),
  ...(cut ? ['its end was lost'] : []),
  ...matters.filter((name) => missing.includes(name)).map((name) => `${name} is not certain`),
]
