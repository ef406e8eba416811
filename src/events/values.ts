/** Any JSON value. */
export type Json = string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json }

/** A place on the earth, in decimal degrees. North and east are positive. */
export interface Location {
  readonly latitude: number
  readonly longitude: number
}

/** Whether each door and trunk is open. Always complete: a door that the message leaves out is closed. */
export interface Doors {
  readonly driverFront: boolean
  readonly driverRear: boolean
  readonly passengerFront: boolean
  readonly passengerRear: boolean
  readonly trunkFront: boolean
  readonly trunkRear: boolean
}

/** A flag for each tire, as in pressure warnings. Always complete: a tire that the message leaves out is `false`. */
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

/** A time of day without a date or a zone. */
export interface TimeOfDay {
  readonly hour: number
  readonly minute: number
  readonly second: number
}

/** Any value of a field. `null` means that there is no value now (the maker's `invalid`, the service's `null`). */
export type FieldValue = Json | Location | Doors | Tires | TimeOfDay
