import { newest } from '../diary'
import { drive, receiver } from '../receiver'

export const dynamic = 'force-dynamic' // made for each request

export default async function Page() {
  const lasting = []
  for await (const vehicle of receiver.vehicles.list()) lasting.push(drive.open(vehicle))
  return (
    <main>
      <h1>Diary of drives</h1>
      <ul>
        {lasting.map(
          (each) =>
            each?.lasts && (
              <li key={each.id}>
                {each.vin} drives since {each.startedAt.toISOString()}
              </li>
            ),
        )}
        {newest().map(({ id, vin, started, minutes, miles, percent, incomplete }) => (
          <li key={String(id)}>
            {vin} drove {miles ?? '?'} miles in {minutes} minutes from {started}, {percent ?? '?'} % of the battery
            {incomplete === 1 && ' (incomplete)'}
          </li>
        ))}
      </ul>
      <p>Telemetry is posted to /telemetry.</p>
    </main>
  )
}
