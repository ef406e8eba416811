import { any, type Edge, ends, episode, is, path, range, span, starts } from '../src/when.ts'

const during = any(is('Gear', 'D'), is('Gear', 'R'))
const two = { odometer: span('Odometer'), energy: span('EnergyRemaining') } as const
const options = { during, joins: { minutes: 3 }, silence: { hours: 1 } } as const
/** What a receiver is asked to tell. */
export const episodeKinds: Readonly<Record<string, readonly Edge[]>> = {
  'no edge': [],
  'starts and ends': [starts(during), ends(during)],
  'an episode with two spans': [episode('trip', { ...options, measures: two })],
  'and a range and a path': [
    episode('trip', { ...options, measures: { ...two, speed: range('VehicleSpeed'), route: path() } }),
  ],
}
export const fields = ['Gear', 'Odometer', 'EnergyRemaining', 'Location', 'VehicleSpeed', 'BatteryLevel'] as const

/** A message. */
export interface Body {
  readonly vin: string
  readonly createdAt: string
  readonly data: Readonly<Record<string, unknown>>
}

/** Messages of forty vehicles: trips of 12 minutes and stops of 5, each field on its own, nine messages a minute. */
export function drives(minutes: number, shuffleMs: number): readonly Body[] {
  const startMs = Date.now() - minutes * 60_000
  const all: { at: number; body: Body }[] = []
  for (let car = 0; car < 40; car += 1)
    for (let n = 0; n < minutes * 9; n += 1) {
      const sent = startMs + n * 6_667 + car * 150
      const inTrip = (n + car * 7) % 153
      const turn = n % 6
      const data: Record<string, unknown> =
        inTrip === 0
          ? { Gear: 'D' }
          : inTrip === 108
            ? { Gear: 'P' }
            : turn < 2
              ? { Location: { latitude: 52 + n / 1_000, longitude: 4 + car } }
              : turn === 2
                ? { VehicleSpeed: n % 70 }
                : turn === 3
                  ? { Odometer: 1_000 + n / 10 }
                  : turn === 4
                    ? { EnergyRemaining: 60 - n / 100 }
                    : { BatteryLevel: 90 - n / 100 }
      all.push({
        at: sent + (((n * 7_919) % 1_000) / 1_000) * shuffleMs,
        body: { vin: `0FLEETV14T${String(car).padStart(7, '0')}`, createdAt: new Date(sent).toISOString(), data },
      })
    }
  return all.toSorted((one, other) => one.at - other.at).map(({ body }) => body)
}
