/** A vehicle, as far as a receiver has heard of it. Each one of `receiver.vehicles.list()` is one. */
export interface HeardVehicle {
  readonly vin: string
  /** When its newest message was received. `undefined`: never. */
  readonly seenAt: Date | undefined
  /** Whether it is online, by its last messages. `undefined`: not known. */
  readonly online: boolean | undefined
  /** The last value of a `state` message. */
  readonly state: string | undefined
}

/**
 * Why nothing comes from a vehicle:
 *
 * - of the whole business: `business_not_active`, `webhook_not_found`, `webhook_paused`
 * - of the customer: `business_product_not_consented`, `customer_reconnect_required`, `customer_scope_missing`
 * - of the vehicle: `key_not_installed`, `config_not_found`, `config_not_synced`, `stream_limit_reached`
 * - no fault: `asleep`, `offline`
 * - nobody knows why: `silent` and, when no message ever came, `never_heard`. The service finds nothing wrong.
 *
 * Any other is the code of the error with which the service answered, so it could not tell.
 */
export type MissingReason = (typeof missingReasons)[number] | (string & {})

/** The known vehicles, in the order in which they are looked at. */
export const missingReasons = [
  'business_not_active',
  'webhook_not_found',
  'webhook_paused',
  'business_product_not_consented',
  'customer_reconnect_required',
  'customer_scope_missing',
  'key_not_installed',
  'config_not_found',
  'config_not_synced',
  'stream_limit_reached',
  'silent',
  'never_heard',
  'asleep',
  'offline',
] as const

/** A vehicle that customers share, or did share, and that a receiver does not hear. */
export interface MissingVehicle {
  readonly vin: string
  readonly reason: MissingReason
  /** What to do. */
  readonly hint: string
  /** When the last message came. `undefined`: never. */
  readonly heardAt: Date | undefined
  /** The customer who shares it. `undefined`: nobody does, or the service names none. */
  readonly customer: { readonly id: string; readonly ref: string | null } | undefined
}

/** The last look for missing vehicles. */
export interface MissingReport {
  /** When it ended. */
  readonly at: Date
  readonly vehicles: readonly MissingVehicle[]
  /** Why the service could not be asked to the end. */
  readonly error?: string | undefined
}

/** What `metricsRoutes` and `operatorRoutes` show of missing vehicles: `client.missing(receiver)`. */
export interface MissingWatch {
  /** The last look. When it is an hour old, or there was none, this begins one in the background. */
  last(): MissingReport | undefined
  /** Resolves to a look that is at most a minute old, or that begins now. With thousands of missing vehicles it takes minutes. */
  look(): Promise<MissingReport>
}
