/** What JSON can carry. */
export type Json = string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json }

/** A place on the earth, in decimal degrees: north and east are positive. */
export interface Location {
  readonly latitude: number
  readonly longitude: number
}

/** Which doors and trunks are open. Always complete: what an emitter leaves out is closed. */
export interface Doors {
  readonly driverFront: boolean
  readonly driverRear: boolean
  readonly passengerFront: boolean
  readonly passengerRear: boolean
  readonly trunkFront: boolean
  readonly trunkRear: boolean
}

/** A flag per tire, as in pressure warnings. Always complete: what an emitter leaves out is `false`. */
export interface Tires {
  readonly frontLeft: boolean
  readonly frontRight: boolean
  readonly rearLeft: boolean
  readonly rearRight: boolean
  readonly semiMiddleAxleLeft2: boolean
  readonly semiMiddleAxleRight2: boolean
  readonly semiRearAxleLeft: boolean
  readonly semiRearAxleRight: boolean
  readonly semiRearAxleLeft2: boolean
  readonly semiRearAxleRight2: boolean
}

/** A time of day without a date and without a zone. */
export interface TimeOfDay {
  readonly hour: number
  readonly minute: number
  readonly second: number
}

/** Any value a field can have. `null` is "no value now" (the maker's `invalid`, the service's `null`). */
export type FieldValue = Json | Location | Doors | Tires | TimeOfDay
