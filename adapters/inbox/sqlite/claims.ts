import { type Claim, type InboxMessage, mostCrashes, type NextAttempt, type Waiting } from '../../../src/inbox/inbox.ts'
import { seqOf } from '../../../src/inbox/delivery-id.ts'
import { CrashSuspects } from '../crash-suspects.ts'
import type { InboxFile } from './file/interface.ts'
import type { CommitQueue } from './commit-queue.ts'
import type { Health } from './health.ts'
import { type CachedMessage, MessageCache } from './message-cache.ts'

interface ClaimsParts {
  readonly file: Pick<InboxFile, 'find'>
  readonly commits: CommitQueue
  readonly health: Health
}

/** Hands messages out, and counts how often: a message during which processes end is given up. */
export class Claims {
  readonly #parts: ClaimsParts
  readonly #cache = new MessageCache()
  readonly #suspects = new CrashSuspects()

  constructor(parts: ClaimsParts) {
    this.#parts = parts
  }

  /** A process that crashed left the messages up to this `seq`. Any of them may have been handed out without a note. */
  suspect(upTo: number): void {
    this.#suspects.upTo = upTo
  }

  recovered(waiting: Waiting): Waiting {
    return seqOf(waiting.id) <= this.#suspects.upTo ? { ...waiting, redelivered: true } : waiting
  }

  /** The message is in the file, and waits. */
  added(message: InboxMessage, seq: number): void {
    this.#cache.wait({ message, seq, deliveries: 0, replayed: false, isClaimed: false })
  }

  /** A message that is in memory: claimed, or among the newest that wait. */
  get(id: string): CachedMessage | undefined {
    return this.#cache.get(id)
  }

  delete(id: string): void {
    this.#cache.delete(id)
  }

  forget(vin: string): void {
    this.#cache.forget(vin)
  }

  claim(id: string): Claim | undefined | Promise<Claim | undefined> {
    const known = this.#cache.get(id)
    if (known !== undefined) return this.#handOut(known)
    return this.#find(id).then((found) => found && this.#handOut(found))
  }

  /** The message waits for its next attempt. */
  reschedule(seq: number, next: NextAttempt, found: CachedMessage | undefined): void | Promise<void> {
    const { attempts, notBefore, deliveries: deliveriesFrom, failure = null } = next
    const deliveries = found?.deliveries ?? 0
    if (found !== undefined) {
      if (deliveriesFrom !== undefined) found.deliveries = deliveriesFrom
      this.#cache.wait(found)
    }
    const update = { seq, deliveries: 0, attempts, notBefore, failure }
    this.#parts.commits.update(deliveriesFrom === undefined ? update : { ...update, deliveriesFrom })
    return this.writeEnd(deliveries)
  }

  /**
   * That a message which was handed out so often ran alone, and did not end its process, must be on the disk before others run, because they may end
   * it. If the commit fails, a later one writes it.
   */
  writeEnd(deliveries: number): void | Promise<void> {
    return deliveries >= mostCrashes ? this.#parts.commits.flush().catch(() => {}) : undefined
  }

  async #find(id: string): Promise<CachedMessage | undefined> {
    const { file, commits, health } = this.#parts
    const seq = seqOf(id)
    if (commits.isSettling(seq)) return undefined
    if (commits.isChanging(seq)) await commits.flush()
    const found = await health.read(() => file.find(seq))
    if (found?.message.id !== id) return undefined
    return this.#cache.get(id) ?? { ...found, seq, isClaimed: false }
  }

  /** Counts the claim, and writes it first when the message may end the process. */
  #handOut(found: CachedMessage): Claim | Promise<Claim> {
    const { commits } = this.#parts
    const { message, seq, deliveries: before, replayed, replay, changed } = found
    const known = { lane: message.lane, seq, deliveries: before, replayed }
    // It is handed out for the first time, and no process has crashed since it came.
    const isNew = before === 0 && !replayed && seq > this.#suspects.upTo
    const deliveries = isNew ? 0 : this.#suspects.deliveriesOf(known)
    found.deliveries = deliveries + 1
    this.#cache.claim(found)
    commits.update({ seq, deliveries: found.deliveries - before })
    const claim = { message, deliveries, replayed, replay, changed }
    if (isNew || !this.#suspects.mustWrite(known)) return claim
    return commits.flush().then(
      () => claim,
      (error: unknown) => {
        // A disk that fails for a while must not look like a message that kills its process.
        commits.update({ seq, deliveries: before - found.deliveries })
        found.deliveries = before
        this.#suspects.takeBack(message)
        throw error
      },
    )
  }
}
