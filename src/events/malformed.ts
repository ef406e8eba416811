import type { FleetEvent } from './event.ts'

/**
 * An authentic body, or a part of one, that could not be read as messages. It was refused and is not kept, except for the
 * part of its text that shows what is wrong.
 */
export interface MalformedBody {
  readonly topic: 'malformed'
  /** When it reached this receiver. */
  readonly receivedAt: Date
  /** The stable `error` of the answer. */
  readonly error: string
  /** The first 4,096 characters of the body. */
  readonly text: string
  /** The length of the whole body in characters. */
  readonly length: number
  /** The 0-based number of the broken message. The messages before it were accepted. */
  readonly eventNumber?: number
}

/** The vehicle that an event is about. `undefined` for an event or a malformed body without a VIN. */
export function vinOfEvent(event: FleetEvent | MalformedBody): string | undefined {
  return event.topic === 'malformed' ? undefined : event.vin
}
