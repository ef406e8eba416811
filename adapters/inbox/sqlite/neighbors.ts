import { seqOf } from '../../../src/inbox/delivery-id.ts'
import type { InboxSettings } from '../../../src/inbox/inbox.ts'
import type { UnopenedInbox } from '../../../src/observe/stats.ts'
import type { Claims } from './claims.ts'
import type { Adopted } from './file/interface.ts'
import type { Pending } from './pending.ts'
import { logAdopted, logUnopened } from './recovery.ts'

interface NeighborsParts {
  readonly settings: InboxSettings
  readonly pending: Pending
  readonly claims: Claims
}

/** The files of other receivers beside this one: abandoned files with messages, and files that were taken over. */
export class Neighbors {
  readonly #parts: NeighborsParts
  #unopened: readonly UnopenedInbox[] = []
  /** What was taken over of a file that is only partly here. */
  #taken = { messages: 0, deadLetters: 0 }

  constructor(parts: NeighborsParts) {
    this.#parts = parts
  }

  get unopened(): readonly UnopenedInbox[] {
    return this.#unopened
  }

  /** What was found when the file was opened, and is in the log. */
  known(found: readonly UnopenedInbox[]): void {
    this.#unopened = found
  }

  /** Files that wait for their receiver. Each is in the log once. */
  found(files: readonly UnopenedInbox[]): void {
    const { log } = this.#parts.settings
    for (const left of files) if (!this.#unopened.some(({ path }) => path === left.path)) logUnopened(log, left)
    const others = this.#unopened.filter((known) => !files.some((left) => left.path === known.path))
    this.#unopened = [...others, ...files]
  }

  /** Messages of a receiver that no longer runs are in this inbox now. */
  tookOver({ path, waiting, bytes, deadLetters, unclean, gaps, isLast }: Adopted): void {
    const { settings, pending, claims } = this.#parts
    pending.add(waiting.length, bytes)
    this.#unopened = this.#unopened.filter((other) => other.path !== path)
    const taken = this.#taken
    this.#taken = { messages: taken.messages + waiting.length, deadLetters: taken.deadLetters + deadLetters }
    if (isLast) {
      logAdopted(settings.log, { path, ...this.#taken })
      this.#taken = { messages: 0, deadLetters: 0 }
    }
    const newest = waiting.at(-1)
    if (newest !== undefined && unclean) claims.suspect(seqOf(newest.id))
    if (newest !== undefined)
      settings.onWaiting?.(unclean ? waiting.map((each) => ({ ...each, redelivered: true })) : waiting)
    for (const gap of gaps) settings.onGap?.(gap)
  }
}
