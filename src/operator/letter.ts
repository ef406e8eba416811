import type { DeadMessage } from '../inbox/dead-letters.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'

/** A dead letter as an operator reads it in a list: nothing of its payload. Times are ISO 8601 in UTC. */
export interface LetterSummary {
  /** The delivery's id. */
  readonly id: string
  readonly vin: string | null
  readonly topic: string
  readonly receivedAt: string
  readonly diedAt: string
  readonly attempts: number
  /** The last error of the handler, which can quote what the handler saw. */
  readonly error: string
}

/** A dead letter with its event. */
export interface Letter extends LetterSummary {
  readonly event: unknown
}

export function summaryOf({ id, event, error, attempts, diedAt }: DeadMessage): LetterSummary {
  return {
    id,
    vin: vinOf(event) ?? null,
    topic: event.topic,
    receivedAt: event.receivedAt.toISOString(),
    diedAt: diedAt.toISOString(),
    attempts,
    error,
  }
}

export function letterOf(message: DeadMessage): Letter {
  const { event } = message
  // The id of an event is computed when it is read, and is no member of its own.
  const whole = 'id' in event ? { ...event, id: event.id } : event
  return { ...summaryOf(message), event: whole }
}

function vinOf(event: FleetEvent | MalformedBody): string | undefined {
  return event.topic === 'malformed' ? undefined : event.vin
}
