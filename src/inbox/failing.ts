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

/** For an inbox that keeps it as text. `undefined` for a text that says nothing. */
export function failureIn(text: unknown): LastFailure | undefined {
  if (typeof text !== 'string') return undefined
  try {
    const found: unknown = JSON.parse(text)
    if (typeof found !== 'object' || found === null) return undefined
    const { handler, error, sinceMs }: { handler?: unknown; error?: unknown; sinceMs?: unknown } = found
    return typeof handler === 'string' && typeof error === 'string' && typeof sinceMs === 'number'
      ? { handler, error, sinceMs }
      : undefined
  } catch {
    return undefined
  }
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

/** What several processes report, together. No vehicle is in two of them. */
export function togetherOf(reports: readonly Failing[]): Failing {
  const handlers = new Map<string, FailingHandler>()
  for (const one of reports.flatMap((report) => report.handlers)) {
    const { handler, error } = one
    const known = handlers.get(handler)
    const since = new Date(one.since)
    handlers.set(handler, {
      handler,
      error,
      messages: one.messages + (known?.messages ?? 0),
      vehicles: one.vehicles + (known?.vehicles ?? 0),
      since: known !== undefined && known.since < since ? known.since : since,
    })
  }
  const sum = (of: 'messages' | 'vehicles'): number => reports.reduce((count, report) => count + report[of], 0)
  return {
    messages: sum('messages'),
    vehicles: sum('vehicles'),
    handlers: [...handlers.values()].toSorted((one, other) => other.messages - one.messages),
  }
}

function vehiclesOf(messages: readonly FailingMessage[]): number {
  return new Set(messages.flatMap(({ vin }) => vin ?? [])).size
}

/** The text of an error, or only its name, which comes first. */
export const shownError = (error: string, shows: boolean): string =>
  shows ? error : (/^\w{1,60}(?=:|$)/.exec(error)?.[0] ?? 'Error')
