import type { VehicleDataEvent } from '../events/event.ts'
import type { Normalizer } from '../wire/normalizer.ts'
import type { Call } from './call.ts'
import { listProducts, vinsOf } from './product.ts'
import type { Connection } from './request.ts'
import { createVehicleResource } from './vehicle.ts'

/** Where something may be missing: a `gap` event, what `onResumed` of a stream is told, or a VIN. */
export interface Refillable {
  /** The vehicle concerned; absent when any may be. */
  readonly vin?: string | undefined
}

/** How a gap is closed. */
export interface RefillOptions {
  /** Vehicles that are asked at once. Default 4. */
  readonly concurrency?: number
  /** Is told of every vehicle that could not be asked, for instance because it is asleep. Without it the first such error is thrown, after all other vehicles. */
  readonly onFailed?: (vin: string, error: unknown) => unknown
  readonly signal?: AbortSignal
}

/** Fetches the full state of the vehicles concerned, in the order in which they answer. */
export async function* refill(
  { clock }: Connection,
  call: Call,
  normalizer: Normalizer,
  { vin }: Refillable,
  { concurrency = 4, onFailed, signal }: RefillOptions,
): AsyncGenerator<VehicleDataEvent, void, undefined> {
  const given = signal === undefined ? {} : { signal }
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

  while (left.length > 0 || asked.size > 0) {
    for (const next of left.splice(0, Math.max(1, concurrency) - asked.size)) asked.set(next, ask(next))
    const answered = await Promise.race(asked.values())
    asked.delete(answered.vin)
    signal?.throwIfAborted()
    if (answered.event?.topic === 'vehicle_data') yield answered.event
    else if (onFailed === undefined) errors.push(answered.error)
    else await onFailed(answered.vin, answered.error)
  }
  if (errors.length > 0) throw errors[0]
}

interface Answered {
  readonly vin: string
  readonly event?: ReturnType<Normalizer['normalize']>
  readonly error?: unknown
}
