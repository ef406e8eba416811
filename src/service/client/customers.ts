import { elapsedMs } from '../../base/clock.ts'
import { guardedLog } from '../../base/log.ts'
import { readTime } from '../../wire/scalars.ts'
import { createCall } from './call.ts'
import type { CallOptions, Connection } from './connection.ts'
import { listReadableProducts, type Product } from './products.ts'
import { ServiceError } from './service-error.ts'

/** The customer who shares a vehicle. */
export interface Customer {
  /** Identifies the customer. It stays the same for this business. */
  readonly id: string
  /** The business's own name or number for the customer. `null`: the business gave none. */
  readonly ref: string | null
}

/** A vehicle, and who shares it. */
export interface CustomerOfVehicle extends Customer {
  readonly vin: string
}

/**
 * Whose vehicle it is: `client.customers()`. Create one for the whole program, because each has a list of its own in memory.
 *
 * Specification: "Consented products".
 */
export interface Customers {
  /**
   * The customer who shares this vehicle. `undefined`: nobody shares it, or the service has not said so yet. Never rejects, so a handler
   * can wait for it: it waits for one answer of the service, at most 5 seconds, when the list is read for the first time, does not have
   * the vehicle, or is an hour old. Otherwise it answers at once, and while the service is down it answers with what it knows.
   */
  of(vin: string | undefined): Promise<Customer | undefined>
  /**
   * Every vehicle that somebody shares, with its customer, as the service says it now: rows for `receiver.vehicles.setAll`. Rejects with
   * {@link ServiceError} when the service does not say it, so that nothing is removed then.
   */
  list(options?: CallOptions): Promise<readonly CustomerOfVehicle[]>
}

/** The list is read again after this time, in milliseconds, because a vehicle can change hands. */
const hourMs = 3_600_000
/** The shortest time between two requests, in milliseconds, whether they succeed or not. */
const minuteMs = 60_000
/** The longest that a handler waits for the service, in milliseconds. */
const answerMs = 5_000

export function createCustomers(connection: Connection): Customers {
  const { clock, retry, timeoutMs } = connection
  const log = guardedLog(connection.log)
  // Handlers wait for it, so a request that fails is sent again by a later message, and not at once.
  const once = { ...retry, attempts: 1 }
  const call = createCall({ ...connection, retry: once, timeoutMs: Math.min(timeoutMs, answerMs) })
  /** `undefined` behind a VIN: the service names no customer for it. */
  let known: ReadonlyMap<string, Customer | undefined> = new Map()
  let reading = Promise.resolve()
  let [oldAt, nextAt] = [-Infinity, -Infinity]
  let [isFailing, isPartly] = [false, false]

  function warnOf(unreadable: number): void {
    // What to do: `customers.of` answers `undefined` for these. A newer fleethook may know their shape.
    if (unreadable > 0 && !isPartly)
      log.warn('the list of customers has products that could not be read', { products: unreadable })
    isPartly = unreadable > 0
  }

  async function read(): Promise<void> {
    const startedAt = elapsedMs(clock)
    nextAt = startedAt + minuteMs
    try {
      const { products, unreadable } = await listReadableProducts(call)
      known = customersIn(products)
      oldAt = startedAt + hourMs
      isFailing = false
      warnOf(unreadable)
    } catch (error) {
      const { code, retryAfterMs = 0 } = error instanceof ServiceError ? error : { code: 'failed' }
      nextAt = startedAt + Math.max(minuteMs, retryAfterMs)
      if (!isFailing)
        // What to do: `error` says why. Until then, `customers.of` does not know new vehicles.
        log.warn('the list of customers could not be read, and is read again in a minute', { error: code })
      isFailing = true
    }
  }

  return {
    async of(vin) {
      if (vin === undefined) return undefined
      const now = elapsedMs(clock)
      const isKnown = known.has(vin)
      if ((!isKnown || now >= oldAt) && now >= nextAt) reading = read()
      if (!isKnown || !isFailing) await reading
      return known.get(vin)
    },

    async list(options) {
      const { products, unreadable } = await listReadableProducts(createCall(connection), options)
      warnOf(unreadable)
      const shared = customersIn(products.filter(({ product_type: type }) => type === 'vehicle'))
      return [...shared].flatMap(([vin, customer]) =>
        customer === undefined ? [] : [{ vin, id: customer.id, ref: customer.ref }],
      )
    },
  }
}

/** When a vehicle was sold and two customers share it, it belongs to the newer one. */
export function customersIn(products: readonly Product[]): ReadonlyMap<string, Customer | undefined> {
  const oldestFirst = products.toSorted((one, other) => timeOf(one) - timeOf(other))
  return new Map(
    oldestFirst.map(({ product_id: vin, customer }) => [
      vin,
      customer && { id: customer.id, ref: customer.ref ?? null },
    ]),
  )
}

const timeOf = ({ granted_at: at }: Product): number => readTime(at) || 0
