import type { Receiver } from 'fleethook'
import type { Client } from 'fleethook/client'
import type { ExactlyOnce } from 'fleethook/inbox/postgres'
import { charge, trip } from './episodes.ts'
import { type Database, saveCharge, saveTrip } from './rows.ts'

export const addHandlers = (receiver: Receiver, exactly: ExactlyOnce<Database>, client?: Client): Receiver =>
  receiver
    .when(
      trip,
      exactly('trips', ({ change, vehicle }, _context, tx) => saveTrip(tx, change, trip.doubts(change, vehicle))),
    )
    .when(
      charge,
      exactly('charges', ({ change, vehicle }, _context, tx) =>
        saveCharge(tx, change, charge.doubts(change, vehicle, ['energy', 'percent'])),
      ),
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
