import type { DeadLetters, ReplaySelection } from '../receiver-interface.ts'

/** What an operator works on: a receiver, or the inbox of one that does not run. */
export interface Operated {
  readonly deadLetters: DeadLetters
  /** Puts back messages that were handled and are still held. Resolves to how many. */
  readonly replay: (which: ReplaySelection) => Promise<number>
}
