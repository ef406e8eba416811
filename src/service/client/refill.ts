import { aFunction, anything, checkOptions, type Rules } from '../../base/options.ts'
import type { VehicleDataEvent } from '../../events/event.ts'
import type { Source } from '../../receiver/interface.ts'
import { jsonText } from '../../wire/json.ts'
import type { Normalizer } from '../../wire/normalizer.ts'
import type { Call } from './call.ts'
import type { Connection } from './connection.ts'
import { type Fed, feedMessages } from './feed.ts'
import { createVehicleResource, listProducts, vinsOf } from './products.ts'

/** Where messages may be missing: a `gap` event, the gap that a stream passes to `onResumed`, or `{ vin }`. */
export interface Refillable {
  /** The vehicle concerned. Without it, every shared vehicle may be concerned, unless the gap is one of an energy site. */
  readonly vin?: string | undefined
  /** The energy site concerned. Its stream sends whole documents again, so there is nothing to fetch. */
  readonly siteId?: string | undefined
  /** In a `gap` event, it has the `siteId`. */
  readonly meta?: { readonly [key: string]: unknown }
}

/**
 * The full state of vehicles, as `vehicle_data` events. `receiver.from(refill)` handles them as if they had been posted to the
 * webhook.
 */
export interface Refill extends AsyncIterable<VehicleDataEvent>, Source {}

/** The options of `client.refill`. */
export interface RefillOptions {
  /**
   * Called for each vehicle that did not answer, for instance because it is asleep. Without it, the iteration goes on with
   * the other vehicles and then throws the first such error.
   */
  readonly onFailed?: (vin: string, error: unknown) => unknown
  /** The sections of the document to fetch, as in `vehicle(vin).data`. Without it the document has no location. */
  readonly endpoints?: readonly string[]
  /** Ends the refill. The iteration then throws the signal's reason. */
  readonly signal?: AbortSignal
}

const rules: Rules<RefillOptions> = {
  onFailed: aFunction,
  endpoints: { must: 'must be a list of sections', accepts: Array.isArray },
  signal: anything,
}

/** The most vehicles that are asked at once. */
const mostAsked = 4

async function* states(
  { clock }: Connection,
  call: Call,
  normalizer: Normalizer,
  { vin, siteId, meta }: Refillable,
  { onFailed, endpoints, signal }: RefillOptions,
): AsyncGenerator<VehicleDataEvent, void, undefined> {
  if ((siteId ?? meta?.['siteId']) !== undefined) return
  // Cancels the requests that are still open when the loop ends early.
  const enough = new AbortController()
  const given = { signal: signal === undefined ? enough.signal : AbortSignal.any([signal, enough.signal]) }
  const left = [...(vin === undefined ? vinsOf(await listProducts(call, given)) : [vin])]
  const asked = new Map<string, Promise<RefilledVehicle>>()
  const errors: unknown[] = []

  const ask = async (next: string): Promise<RefilledVehicle> => {
    try {
      const document = await createVehicleResource(call, next).data(
        endpoints === undefined ? given : { ...given, endpoints },
      )
      const createdAt = new Date(clock.now()).toISOString()
      return { vin: next, event: normalizer.normalize({ vin: next, createdAt, vehicle_data: document }, clock.now()) }
    } catch (error) {
      return { vin: next, error }
    }
  }

  try {
    while (left.length > 0 || asked.size > 0) {
      for (const next of left.splice(0, mostAsked - asked.size)) asked.set(next, ask(next))
      const answered = await Promise.race(asked.values())
      asked.delete(answered.vin)
      signal?.throwIfAborted()
      if (answered.event?.topic === 'vehicle_data') yield answered.event
      else if (onFailed === undefined) errors.push(answered.error)
      else await onFailed(answered.vin, answered.error)
    }
  } finally {
    enough.abort()
  }
  if (errors.length > 0) throw errors[0]
}

/** Fetches the full state of the vehicles concerned, in the order of their answers. Sends nothing before it is iterated. */
export function createRefill(
  connection: Connection,
  call: Call,
  normalizer: Normalizer,
  gap: Refillable,
  options: RefillOptions,
): Refill {
  checkOptions('client.refill', options, rules)
  const open = (signal?: AbortSignal): AsyncGenerator<VehicleDataEvent, void, undefined> =>
    states(connection, call, normalizer, gap, signal === undefined ? options : { ...options, signal })
  return {
    [Symbol.asyncIterator]: () => open(),
    async feed(sink) {
      const signal = options.signal === undefined ? sink.signal : AbortSignal.any([options.signal, sink.signal])
      const texts = async function* (): AsyncGenerator<Fed> {
        for await (const { raw } of open(signal)) yield { text: jsonText(raw) }
      }
      await feedMessages(sink, texts())
    },
  }
}

interface RefilledVehicle {
  readonly vin: string
  readonly event?: ReturnType<Normalizer['normalize']>
  readonly error?: unknown
}
