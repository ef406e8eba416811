import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import type { ExecutionContext } from '../hosting/execution-context.ts'

/** A message that was given up, with why. */
export interface DeadMessage {
  /** The delivery's id, for `receiver.deadLetters.replay(id)`. */
  readonly id: string
  readonly event: FleetEvent | MalformedBody
  /** The name and message of the last error of the last handler that failed. */
  readonly error: string
  readonly attempts: number
  readonly diedAt: Date
}

/** Which messages are meant: those for which all of it holds. */
export interface MessageSelection {
  readonly vin?: string | undefined
  readonly topic?: string | undefined
  /** Received at this time or later. */
  readonly from?: Date | undefined
  /** Received before this time. */
  readonly to?: Date | undefined
}

/** Which handled messages to replay. Both times have to be written out. */
export interface ReplaySelection extends MessageSelection {
  readonly from: Date
  readonly to: Date
  /** Only counts them. */
  readonly dryRun?: boolean | undefined
}

/** The messages that were given up. */
export interface DeadLetters {
  /** Oldest first, at most `limit` (default 100), behind the id `after`: that of the last one of the page before. */
  list(
    which?: MessageSelection & { readonly limit?: number | undefined; readonly after?: string | undefined },
  ): Promise<readonly DeadMessage[]>
  get(id: string): Promise<DeadMessage | undefined>
  /**
   * Puts one back by its id, or all that are meant, at the end of their lanes: all of their handlers run anew. Resolves to
   * how many; with `dryRun` to how many there are. Rejects with `inbox_full` or `inbox_unavailable` when there is no room, and
   * what was not put back by then stays a dead letter. `from` is what handlers find as `context.env`, and what holds their
   * work where the runtime ends it with a request.
   */
  replay(
    which: string | (MessageSelection & { readonly dryRun?: boolean | undefined }),
    from?: { readonly env?: unknown; readonly context?: ExecutionContext },
  ): Promise<number>
  /** Forgets one by its id, or all that are meant. Resolves to how many. */
  discard(which: string | (MessageSelection & { readonly dryRun?: boolean | undefined })): Promise<number>
}

/** What an operator can ask of a receiver, or of the inbox of a stopped one. */
export interface OperatorApi {
  readonly deadLetters: DeadLetters
  /** Replays messages that were handled and that the inbox still keeps. Resolves to the number of messages. */
  readonly replay: (which: ReplaySelection) => Promise<number>
}
