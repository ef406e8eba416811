import type { Group } from './cases.ts'
import type { HandledMessage } from './handled.ts'
import { keyOf } from './session.ts'

/** How to kill the receiver. */
export interface Restarting {
  /** Kills the receiver, and starts it again. */
  readonly command: string
  readonly kills: number
}

export type Result = 'pass' | 'fail' | 'unchecked'

/** What is said about one case: of its answers, or of what the receiver handled. */
export interface Check {
  readonly group: Group
  readonly name: string
  readonly aspect: 'answer' | 'handled'
  readonly result: Result
  /** What was found, or why it was not checked. */
  readonly detail?: string | undefined
}

export interface Asked {
  readonly url: string
  readonly only: readonly Group[]
  readonly isStrict: boolean
  /** Handlers know a repeated message by its id. */
  readonly mayRepeat: boolean
  readonly restarting: Restarting | undefined
}

/** Why nothing is said about what was handled. */
export const noList = 'nothing lists what it handled: --handled or --sink'

const mostShown = 4
export const listed = (items: readonly string[]): string =>
  items.slice(0, mostShown).join('; ') + (items.length > mostShown ? `; and ${items.length - mostShown} more` : '')

/** Whether the messages of each vehicle were handled in order, judged by the first time each was handled. */
export function isInOrder(handled: readonly HandledMessage[]): boolean {
  const newest = new Map<string, number>()
  const seen = new Set<string>()
  for (const message of handled) {
    if (seen.has(keyOf(message))) continue
    seen.add(keyOf(message))
    if (message.serial < (newest.get(message.vin) ?? 0)) return false
    newest.set(message.vin, message.serial)
  }
  return true
}
