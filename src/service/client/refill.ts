import type { VehicleDataEvent } from '../../events/event.ts'
import type { Normalizer } from '../../wire/normalizer.ts'
import type { Source } from '../../receiver/source.ts'
import type { Call } from './call.ts'
import { feedMessages } from './feed.ts'
import { listProducts, vinsOf } from './product.ts'
import type { Connection } from './request.ts'
import { createVehicleResource } from './vehicle.ts'

/** Where something may be missing: a `gap` event, what `onResumed` of a stream is told, or a VIN. */
export interface Refillable {
  /** The vehicle concerned; absent when any may be. */
  readonly vin?: string | undefined
}

/** The full state of vehicles, as events. `receiver.from(refill)` has them handled as if they had been posted to the webhook. */
export interface Refill extends AsyncIterable<VehicleDataEvent>, Source {}

/** How a gap is closed. */
export interface RefillOptions {
  /** Vehicles that are asked at once. Default 4. */
  readonly concurrency?: number
  /** Is told of every vehicle that could not be asked, for instance because it is asleep. Without it the first such error is thrown, after all other vehicles. */
  readonly onFailed?: (vin: string, error: unknown) => unknown
  readonly signal?: AbortSignal
}

async function* states(
  { clock }: Connection,
  call: Call,
  normalizer: Normalizer,
  { vin }: Refillable,
  { concurrency = 4, onFailed, signal }: RefillOptions,
): AsyncGenerator<VehicleDataEvent, void, undefined> {
  // Whoever has seen enough and leaves does not wait for the rest, nor does the service.
  const enough = new AbortController()
  const given = { signal: signal === undefined ? enough.signal : AbortSignal.any([signal, enough.signal]) }
  const most = Math.max(1, Math.trunc(concurrency) || 1)
  const left = [...(vin === undefined ? vinsOf(await listProducts(call, given)) : [vin])]
  const asked = new Map<string, Promise<Answered>>()
  const errors: unknown[] = []

  const ask = async (next: string): Promise<Answered> => {
    try {
      const document = await createVehicleResource(call, next).data(given)
      const createdAt = new Date(clock.now()).toISOString()
      return { vin: next, event: normalizer.normalize({ vin: next, createdAt, vehicle_data: document }, clock.now()) }
    } catch (error) {
      return { vin: next, error }
    }
  }

  try {
    while (left.length > 0 || asked.size > 0) {
      for (const next of left.splice(0, most - asked.size)) asked.set(next, ask(next))
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

/** Fetches the full state of the vehicles concerned, in the order in which they answer. Asks when it is iterated. */
export function createRefill(
  connection: Connection,
  call: Call,
  normalizer: Normalizer,
  gap: Refillable,
  options: RefillOptions,
): Refill {
  const open = (signal?: AbortSignal): AsyncGenerator<VehicleDataEvent, void, undefined> =>
    states(connection, call, normalizer, gap, signal === undefined ? options : { ...options, signal })
  return {
    [Symbol.asyncIterator]: () => open(),
    async feed(sink) {
      const signal = options.signal === undefined ? sink.signal : AbortSignal.any([options.signal, sink.signal])
      const texts = async function* (): AsyncGenerator<{ readonly text: string }> {
        for await (const { raw } of open(signal)) yield { text: JSON.stringify(raw) }
      }
      await feedMessages(sink, texts)
    },
  }
}

interface Answered {
  readonly vin: string
  readonly event?: ReturnType<Normalizer['normalize']>
  readonly error?: unknown
}
