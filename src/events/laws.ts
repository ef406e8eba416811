import type { FieldCatalogue } from './fields.ts'

/** What physics allows for the values of a field. Units are those of the field; a place is in meters. */
export interface Law {
  /** A counter never falls, unless it `restarts`. A level goes both ways. A place is a `Location`. */
  readonly kind: 'counter' | 'level' | 'place'
  /** The most that it changes in a minute. */
  readonly perMinute: number
  /** The most that two values differ at once: rounding, delayed sending, the interval of a field. */
  readonly atOnce: number
  /** It can never be less, or more. */
  readonly least?: number
  readonly most?: number
  /** A counter that begins again at 0, as the energy of a charge. */
  readonly restarts?: true
}

const laws: Readonly<Record<string, Law>> = {
  Odometer: { kind: 'counter', perMinute: 3, atOnce: 2, least: 0 },
  ACChargingEnergyIn: { kind: 'counter', perMinute: 2, atOnce: 2, least: 0, restarts: true },
  DCChargingEnergyIn: { kind: 'counter', perMinute: 10, atOnce: 1, least: 0, restarts: true },
  EnergyRemaining: { kind: 'level', perMinute: 10, atOnce: 5, least: 0 },
  BatteryLevel: { kind: 'level', perMinute: 10, atOnce: 5, least: 0, most: 100 },
  Soc: { kind: 'level', perMinute: 10, atOnce: 5, least: 0, most: 100 },
  Location: { kind: 'place', perMinute: 5_000, atOnce: 500 },
}

/** The law of a field. `undefined`: any value can follow any other. A field of the business's own has the law that its catalogue gives it. */
export function lawOf(field: string, _ownFields: FieldCatalogue = {}): Law | undefined {
  return Object.hasOwn(laws, field) ? laws[field] : undefined
}
