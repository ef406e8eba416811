import { FleethookError } from '../../../src/base/errors.ts'
import type { DeadLetterReason } from '../../../src/inbox/inbox.ts'
import { unwritable } from '../stored-row.ts'
import type { Move } from './file/interface.ts'
import type { CommitQueue } from './group-commit.ts'
import type { Pending } from './pending.ts'

interface MovesParts {
  readonly commits: CommitQueue
  readonly pending: Pending
  readonly failed: (error: unknown) => void
}

/** Messages that leave the pending ones, and what a failed commit leaves open about that. */
export class Moves {
  readonly #parts: MovesParts
  /** Moves that a failed commit may or may not have written. They are written again when the file is usable. */
  readonly #uncertain = new Map<number, Move>()
  /** Moves that undo revivals which a failed commit may have written. */
  readonly #undone: Move[] = []

  constructor(parts: MovesParts) {
    this.#parts = parts
  }

  async settle(seq: number): Promise<void> {
    await this.#move({ to: 'settled', seq })
  }

  async bury(seq: number, reason: DeadLetterReason): Promise<void> {
    try {
      await this.#move({ to: 'dead', seq, ...reason })
    } catch (error) {
      if (!(error instanceof FleethookError && error.code === 'message_refused')) throw error
      this.#parts.failed(error)
      // Without what it refuses: the message must not hold its vehicle forever.
      const { attempts, diedAt } = reason
      await this.#move({ to: 'dead', seq, error: unwritable, attempts, diedAt })
    }
  }

  /** Makes a kept message of this size pending again. `back` undoes it. Resolves to whether it was there. */
  async revive(seq: number, bytes: number, back: Move): Promise<boolean> {
    const { commits, pending } = this.#parts
    let revived: number | undefined
    try {
      revived = await commits.move({ to: 'pending', seq })
    } catch (error) {
      // A full disk has written nothing.
      if (!(error instanceof FleethookError && error.code === 'inbox_full')) this.#undone.push(back)
      throw error
    } finally {
      if (revived === undefined) pending.release(1, bytes)
    }
    if (revived !== undefined) this.#uncertain.delete(seq)
    return revived !== undefined
  }

  async discard(seq: number): Promise<boolean> {
    return (await this.#parts.commits.move({ to: 'deleted', seq })) !== undefined
  }

  /** The file was opened again after a failed commit: it decides, some refused changes are in it, and some earlier ones may be missing. */
  doubt(): void {
    for (const seq of this.#parts.commits.takeSettled()) this.#uncertain.set(seq, { to: 'settled', seq })
    for (const move of this.#undone.splice(0)) this.#uncertain.set(move.seq, move)
  }

  /** The file is usable again: writes what is in doubt. */
  resume(): void {
    for (const [seq, move] of this.#uncertain) {
      this.#uncertain.delete(seq)
      this.#move(move).catch(() => this.#uncertain.set(seq, move))
    }
  }

  async #move(move: Move): Promise<void> {
    const { commits, pending } = this.#parts
    const bytes = await commits.move(move)
    if (bytes !== undefined) pending.release(1, bytes)
  }
}
