import { backgroundTimer, type Clock, elapsedMs, pause, type Timer } from '../../base/clock.ts'
import { guardedLog, type Log } from '../../base/log.ts'
import { anything, checkOptions, milliseconds, type Rules } from '../../base/options.ts'
import { backoffMs } from '../../core/retry.ts'
import { stoppingReason } from '../../hosting/drainable.ts'
import type { Readiness } from '../../http/answers.ts'
import type { HeardVehicle, MissingReport, MissingVehicle, MissingWatch } from '../../observe/missing.ts'
import { isJsonObject } from '../../wire/record.ts'
import { type Call, createCall, isTransient } from './call.ts'
import { createConfigResource } from './config.ts'
import type { Connection } from './connection.ts'
import { type Customer, customersIn } from './customers.ts'
import { createVehicleResource, listReadableProducts, vinsOf } from './products.ts'
import { ServiceError } from './service-error.ts'
import { createWebhookResource } from './webhook.ts'

/** The vehicles that are shared and not heard, each with its reason: `client.missing`. */
export interface MissingVehicles extends AsyncIterable<MissingVehicle>, MissingWatch {}

/** A receiver with the part `vehicles`, or what knows the same. */
export interface Hearing {
  readonly vehicles: { list(): AsyncIterable<HeardVehicle> | Iterable<HeardVehicle> }
  readonly readiness?: () => Readiness
}

/** The options of `client.missing`. */
export interface MissingOptions {
  /** A vehicle is missing when no message of it has come for this time, in milliseconds. Default an hour. */
  readonly silentMs?: number
  /** Ends the look. It then throws the signal's reason. */
  readonly signal?: AbortSignal
}

const rules: Rules<MissingOptions> = { silentMs: milliseconds(1), signal: anything }

const [minuteMs, hourMs, dayMs] = [60_000, 3_600_000, 86_400_000]
/** The most vehicles that are asked about at once, and the most requests in a second. The business's other calls need the rest. */
const mostAsked = 4
const mostPerSecond = 10

type Why = Pick<MissingVehicle, 'reason' | 'hint'>

/** What to do about reasons that are no code of the service. */
const hints = {
  webhook_not_found: 'The business has no webhook: set it with `webhook.set`, or open a stream for the vehicle.',
  webhook_paused: 'The webhook is paused: set it again with `enabled: true`.',
  business_product_not_consented:
    'No customer shares it any longer. Ask the customer, or erase what you keep of it with `receiver.forget`.',
  key_not_installed: 'The vehicle has no virtual key of the service: the customer must install it.',
  config_not_found: 'It streams nothing: call `config(vin).patch`.',
  config_not_synced: 'It has not taken its config yet: wait until it was online, or wake it with `wakeUp`.',
  stream_limit_reached: 'It streams to as many others as it can: the customer must remove one of them.',
  asleep: 'Nothing to do: it sends again when it wakes.',
  offline: 'It has no network. Nothing to do, unless it lasts.',
  silent:
    'The service finds nothing wrong. Its own errors are in `vehicle(vin).get("fleet_telemetry_errors")`, what we refused in `stats().refused`.',
  never_heard:
    'The service finds nothing wrong. It may not have driven yet; look at `vehicle(vin).get("fleet_telemetry_errors")`.',
} as const

const because = (reason: keyof typeof hints): Why => ({ reason, hint: hints[reason] })

function whyOf({ code, hint, message }: ServiceError): Why {
  return { reason: code, hint: hint ?? message }
}

/** Sends requests one after another, never more than {@link mostPerSecond}, and none while the service asks to wait. */
class Paced {
  readonly #connection: Connection
  readonly #signal: AbortSignal
  #freeAt = -Infinity
  /** The service asks to wait for longer than a call does. */
  #refusal: ServiceError | undefined

  constructor(connection: Connection, signal: AbortSignal) {
    this.#connection = connection
    this.#signal = signal
  }

  /** A call without retries of its own. */
  async send<T>(run: () => Promise<T>): Promise<T> {
    const { clock, retry } = this.#connection
    for (let attempt = 1; ; attempt += 1) {
      if (this.#refusal !== undefined) throw this.#refusal
      const now = elapsedMs(clock)
      const startsAt = Math.max(now, this.#freeAt)
      this.#freeAt = startsAt + 1_000 / mostPerSecond
      if (startsAt > now) await pause(clock, startsAt - now, this.#signal)
      this.#signal.throwIfAborted()
      try {
        return await run()
      } catch (error) {
        const waitMs = Math.max(
          backoffMs(retry, attempt),
          error instanceof ServiceError ? (error.retryAfterMs ?? 0) : 0,
        )
        if (error instanceof ServiceError && waitMs > retry.maxMs) this.#refusal = error
        if (!isTransient(error) || attempt >= retry.attempts || waitMs > retry.maxMs) throw error
        this.#freeAt = Math.max(this.#freeAt, elapsedMs(clock) + waitMs)
      }
    }
  }
}

/** One look: what the service says, beside what was heard. */
class Look {
  readonly #connection: Connection
  readonly #log: Log
  readonly #call: Call
  readonly #paced: Paced
  readonly #given: { readonly signal: AbortSignal }
  /** A vehicle with a message since then is heard. */
  readonly #since: number
  readonly #known = new Map<string, HeardVehicle>()
  #customers: ReadonlyMap<string, Customer | undefined> = new Map()
  #webhook: Why | undefined

  /** Cancels the requests that are under way when the look ends early. */
  readonly #enough = new AbortController()

  constructor(connection: Connection, { silentMs = hourMs, signal }: MissingOptions) {
    this.#connection = connection
    this.#log = guardedLog(connection.log)
    this.#call = createCall({ ...connection, retry: { ...connection.retry, attempts: 1 } })
    this.#given = { signal: AbortSignal.any([this.#enough.signal, ...(signal === undefined ? [] : [signal])]) }
    this.#paced = new Paced(connection, this.#given.signal)
    this.#since = connection.clock.now() - silentMs
  }

  async *vehicles(heard: ReturnType<Hearing['vehicles']['list']>): AsyncGenerator<MissingVehicle, void, undefined> {
    for await (const vehicle of heard) this.#known.set(vehicle.vin, vehicle)
    const shared = await this.#shared()
    if (shared instanceof ServiceError) {
      const silent = [...this.#known.keys()].filter((vin) => !this.#isHeard(vin))
      for (const vin of silent) yield this.#missing(vin, whyOf(shared))
      if (silent.length === 0) throw shared
      return
    }
    const vins = new Set(shared)
    const gone = [...this.#known.keys()].filter((vin) => !vins.has(vin) && !this.#hasSpoken(vin))
    for (const vin of gone) yield this.#missing(vin, because('business_product_not_consented'))
    const missing = shared.filter((vin) => !this.#isHeard(vin))
    const own = missing.map((vin) => [vin, this.#withoutAsking(vin, missing.length === shared.length)] as const)
    for (const [vin, why] of own) if (why !== undefined) yield this.#missing(vin, why)
    yield* this.#asked(own.filter(([, why]) => why === undefined).map(([vin]) => vin))
  }

  /** Reads what concerns all vehicles. An error: the service answers nothing to this business. */
  async #shared(): Promise<readonly string[] | ServiceError> {
    try {
      const { products, unreadable } = await this.#paced.send(() => listReadableProducts(this.#call, this.#given))
      // What to do: They are left out of the missing vehicles. A newer fleethook may know their shape.
      if (unreadable > 0)
        this.#log.warn('the list of products has some that could not be read', { products: unreadable })
      this.#customers = customersIn(products)
      this.#webhook = await this.#problemWithWebhook()
      return vinsOf(products)
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'business_not_active') return error
      throw error
    }
  }

  async #problemWithWebhook(): Promise<Why | undefined> {
    try {
      const { enabled } = await this.#paced.send(() => createWebhookResource(this.#call).get(this.#given))
      return enabled ? undefined : because('webhook_paused')
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'webhook_not_found') return because('webhook_not_found')
      throw error
    }
  }

  /** The vehicles that the service has to be asked about, in the order of its answers. */
  async *#asked(left: string[]): AsyncGenerator<MissingVehicle, void, undefined> {
    const asking = new Map<string, Promise<MissingVehicle>>()
    try {
      while (left.length > 0 || asking.size > 0) {
        for (const vin of left.splice(0, mostAsked - asking.size)) asking.set(vin, this.#ask(vin))
        const answered = await Promise.race(asking.values())
        asking.delete(answered.vin)
        yield answered
      }
    } finally {
      for (const rest of asking.values()) rest.catch(() => {})
      this.#enough.abort()
    }
  }

  /** What a vehicle said last, or what is wrong with all of them, needs no request. */
  #withoutAsking(vin: string, isNobodyHeard: boolean): Why | undefined {
    const atRest = this.#atRest(vin)
    const seenAt = this.#known.get(vin)?.seenAt?.getTime() ?? -Infinity
    // After a day it may have lost its key, or its customer.
    if (atRest !== undefined && this.#connection.clock.now() - seenAt < dayMs) return because(atRest)
    return isNobodyHeard ? this.#webhook : undefined
  }

  async #ask(vin: string): Promise<MissingVehicle> {
    try {
      return this.#missing(vin, await this.#reason(vin))
    } catch (error) {
      if (error instanceof ServiceError) return this.#missing(vin, whyOf(error))
      throw error
    }
  }

  async #reason(vin: string): Promise<Why> {
    const vehicle = createVehicleResource(this.#call, vin)
    const streams = await this.#paced.send(() => this.#streams(vin))
    const found = await this.#paced.send(() => vehicle.get('fleet_telemetry_config', this.#given)).catch(unknownPath)
    const { key_paired: hasKey, limit_reached: isFull, synced } = isJsonObject(found) ? found : {}
    if (hasKey === false) return because('key_not_installed')
    if (!streams) return because('config_not_found')
    if (isFull === true) return because('stream_limit_reached')
    if (synced === false) return because('config_not_synced')
    const { state } = await this.#paced.send(() => vehicle.summary(this.#given))
    if (state === 'asleep') return because('asleep')
    if (state === 'offline') return because('offline')
    return this.#webhook ?? because(this.#known.get(vin)?.seenAt === undefined ? 'never_heard' : 'silent')
  }

  /** Whether the vehicle has a config with a field. */
  async #streams(vin: string): Promise<boolean> {
    try {
      const { fields } = await createConfigResource(this.#connection, this.#call, vin).get(this.#given)
      return Object.keys(fields).length > 0
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'config_not_found') return false
      throw error
    }
  }

  #hasSpoken(vin: string): boolean {
    return (this.#known.get(vin)?.seenAt?.getTime() ?? -Infinity) >= this.#since
  }

  /** A vehicle that said it sleeps is not heard, however recently. */
  #isHeard(vin: string): boolean {
    return this.#hasSpoken(vin) && this.#atRest(vin) === undefined
  }

  #atRest(vin: string): 'asleep' | 'offline' | undefined {
    const { online, state } = this.#known.get(vin) ?? {}
    return online === false ? (state === 'asleep' ? 'asleep' : 'offline') : undefined
  }

  #missing(vin: string, why: Why): MissingVehicle {
    return { vin, ...why, heardAt: this.#known.get(vin)?.seenAt, customer: this.#customers.get(vin) }
  }
}

/** Not every service knows this path. The other answers then have to do. */
function unknownPath(error: unknown): undefined {
  if (!(error instanceof ServiceError) || error.status !== 404) throw error
}

/** Sends nothing before it is iterated, or asked for a look. */
export function createMissing(
  connection: Connection,
  receiver: Hearing,
  options: MissingOptions = {},
): MissingVehicles {
  checkOptions('client.missing', options, rules)
  const open: Open = (signals = []) => {
    const signal = AbortSignal.any([...(options.signal === undefined ? [] : [options.signal]), ...signals])
    return new Look(connection, { ...options, signal }).vehicles(receiver.vehicles.list())
  }
  const watch = new Watch(open, connection.clock, () => receiver.readiness?.().reason === stoppingReason)
  return { [Symbol.asyncIterator]: () => open(), last: () => watch.last(), look: () => watch.look() }
}

type Open = (signals?: readonly AbortSignal[]) => AsyncGenerator<MissingVehicle, void, undefined>

/** A process that stops ends its look within this time, in milliseconds. */
const untilNoticedMs = 250

/** Remembers the last look, and begins the next one when somebody wants to know. */
class Watch implements MissingWatch {
  readonly #open: Open
  readonly #clock: Clock
  /** The process wants to end. */
  readonly #isOver: () => boolean
  #last: MissingReport | undefined
  #looking: Promise<MissingReport> | undefined
  #endedAt = -Infinity

  constructor(open: Open, clock: Clock, isOver: () => boolean) {
    this.#open = open
    this.#clock = clock
    this.#isOver = isOver
  }

  last(): MissingReport | undefined {
    if (elapsedMs(this.#clock) - this.#endedAt >= hourMs && !this.#isOver()) void this.#begin()
    return this.#last
  }

  look(): Promise<MissingReport> {
    const isNew = elapsedMs(this.#clock) - this.#endedAt < minuteMs
    return isNew && this.#last !== undefined ? Promise.resolve(this.#last) : this.#begin()
  }

  #begin(): Promise<MissingReport> {
    this.#looking ??= this.#read().finally(() => (this.#looking = undefined))
    return this.#looking
  }

  async #read(): Promise<MissingReport> {
    const vehicles: MissingVehicle[] = []
    const stopping = new AbortController()
    let error: string | undefined
    let timer: Timer | undefined
    const watch = (): void => {
      if (this.#isOver()) stopping.abort()
      else timer = backgroundTimer(this.#clock, untilNoticedMs, watch)
    }
    watch()
    try {
      for await (const vehicle of this.#open([stopping.signal])) vehicles.push(vehicle)
    } catch (failure) {
      error = failure instanceof ServiceError ? failure.code : 'ended_early'
    } finally {
      timer?.cancel()
    }
    this.#last = { at: new Date(this.#clock.now()), vehicles, error }
    this.#endedAt = elapsedMs(this.#clock)
    return this.#last
  }
}
