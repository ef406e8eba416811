import type { Failing, FailingHandler } from './stats.ts'

/** Why a message still waits although its handlers ran. Only operators read it, so an inbox that does not outlive the process keeps none. */
export interface LastFailure {
  /** The name of the handler. */
  readonly handler: string
  /** Its error as text, for a person to read. It can quote what the handler saw. */
  readonly error: string
  /** When the message began to fail, in milliseconds since the epoch. */
  readonly sinceMs: number
}

/** A message that waits because a handler failed for it. */
export interface FailingMessage {
  /** Left out for messages of no vehicle. */
  readonly vin?: string | undefined
  readonly failure: LastFailure
}

/** Counts them by handler, the most messages first. `shows`: with the texts of errors. */
export function failingOf(messages: readonly FailingMessage[], shows: boolean): Failing {
  const byHandler = new Map<string, FailingMessage[]>()
  for (const message of messages) {
    const those = byHandler.get(message.failure.handler) ?? []
    byHandler.set(message.failure.handler, those)
    those.push(message)
  }
  const handlers = [...byHandler].map(([handler, those]): FailingHandler => {
    const newest = those.reduce((one, other) => (other.failure.sinceMs > one.failure.sinceMs ? other : one))
    const since = those.reduce((first, { failure }) => Math.min(first, failure.sinceMs), Infinity)
    return {
      handler,
      messages: those.length,
      vehicles: vehiclesOf(those),
      since: new Date(since),
      error: shownError(newest.failure.error, shows),
    }
  })
  return {
    messages: messages.length,
    vehicles: vehiclesOf(messages),
    handlers: handlers.toSorted((one, other) => other.messages - one.messages),
  }
}

function vehiclesOf(messages: readonly FailingMessage[]): number {
  return new Set(messages.flatMap(({ vin }) => vin ?? [])).size
}

/** The text of an error, or only its name, which comes first. */
export const shownError = (error: string, shows: boolean): string =>
  shows ? error : (/^\w{1,60}(?=:|$)/.exec(error)?.[0] ?? 'Error')
