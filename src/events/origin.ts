import type { FleetEvent } from './event.ts'
import type { MalformedBody } from './malformed.ts'

/**
 * Who says it: the vehicle (or the service, of it), the receiver, which notices gaps and times, or the business. Only what the vehicle says is a sign of
 * it: that ends a silence, and sets its clock.
 */
export type Origin = 'vehicle' | 'receiver' | 'business'

/** Who says what an event says. */
export function originOf({ topic }: Pick<FleetEvent | MalformedBody, 'topic'>): Origin {
  if (topic === 'facts') return 'business'
  return topic === 'timer' || topic === 'gap' ? 'receiver' : 'vehicle'
}
