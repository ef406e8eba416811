import { FleethookError } from '../../../src/base/errors.ts'
import { PassingMap } from '../../../src/base/passing-map.ts'
import { seqOf } from '../../../src/inbox/delivery-id.ts'
import {
  type Claim,
  type InboxHost,
  type InboxMessage,
  isAbout,
  mostCrashes,
  neverFits,
  type NextAttempt,
  type Waiting,
  whyNeverFit,
} from '../../../src/inbox/inbox.ts'
import { CrashSuspects } from '../crash-suspects.ts'
import type { InboxFile } from './file/interface.ts'
import { mostNewBytes, rowBytes, spaceFor } from './file/volume.ts'
import type { CommitQueue } from './group-commit.ts'
import type { Health } from './health.ts'

type Limits = InboxHost['limits']

/** How many messages wait or are claimed, and how many may. */
export class Pending {
  messages = 0
  bytes = 0
  readonly #limits: Limits
  readonly #maxBytes: number
  /** Created once: under overload, a stack trace for each refusal would cost more than everything else in it. */
  readonly #limitError: FleethookError

  constructor(limits: Limits, maxBytes: number) {
    const { pendingMessages = Infinity, pendingBytes = Infinity } = limits
    this.#limits = limits
    this.#maxBytes = maxBytes
    this.#limitError = new FleethookError(
      'inbox_full',
      `The inbox is at the limits of the receiver: ${pendingMessages} messages or ${pendingBytes} bytes.`,
      { hint: 'Make the handlers faster, or raise `concurrency` or `limits`.' },
    )
  }

  /** The room that they take in the file. */
  get fileBytes(): number {
    return this.bytes + this.messages * rowBytes
  }

  get isFull(): boolean {
    const { pendingMessages = Infinity, pendingBytes = Infinity } = this.#limits
    return this.messages >= pendingMessages || this.bytes >= pendingBytes
  }

  /** How much of the limits or of the room for the file they take, from 0 to 1. */
  usedOf(path: string): number {
    const { pendingMessages = Infinity, pendingBytes = Infinity } = this.#limits
    const room = Math.max(1, Math.min(mostNewBytes(this.#maxBytes), spaceFor(path)))
    return Math.max(this.messages / pendingMessages, this.bytes / pendingBytes, this.fileBytes / room)
  }

  /** Whether the limits have room for these. */
  hasRoom(messages: number, bytes: number): boolean {
    const { pendingMessages = Infinity, pendingBytes = Infinity } = this.#limits
    return this.messages + messages <= pendingMessages && this.bytes + bytes <= pendingBytes
  }

  /** Counts messages that are about to be written, or throws when there is no room for them. */
  reserve(messages: number, bytes: number): void {
    // A commit would drop all that is kept for replays, to make room that is never enough.
    if (bytes + messages * rowBytes > mostNewBytes(this.#maxBytes)) throw neverFits('maxBytes', this.#maxBytes)
    if (!this.hasRoom(messages, bytes)) throw whyNeverFit(messages, bytes, this.#limits) ?? this.#limitError
    this.add(messages, bytes)
  }

  add(messages: number, bytes: number): void {
    this.messages += messages
    this.bytes += bytes
  }

  release(messages: number, bytes: number): void {
    this.add(-messages, -bytes)
  }
}

interface ClaimsParts {
  readonly file: Pick<InboxFile, 'find'>
  readonly commits: CommitQueue
  readonly health: Health
}

/** A message in memory. */
interface KnownMessage extends Claim {
  readonly seq: number
  deliveries: number
  isClaimed: boolean
}

/** The limits for waiting messages in memory. A parsed event takes several times the memory of its text. */
const mostBytes = 2 * 1_048_576
const mostMessages = 2_048

/** Hands messages out, and counts how often: a message during which processes end is given up. */
export class Claims {
  readonly #parts: ClaimsParts
  readonly #suspects = new CrashSuspects()
  /** Claimed messages, and the newest that wait, so that most are not read again. */
  readonly #known = new PassingMap<string, KnownMessage>()
  /** How many of them wait, and their size. */
  #waiting = 0
  #waitingBytes = 0

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
    this.#wait({ message, seq, deliveries: 0, replayed: false, isClaimed: false })
  }

  /** A message that is in memory: claimed, or among the newest that wait. */
  get(id: string): KnownMessage | undefined {
    return this.#known.get(id)
  }

  delete(id: string): void {
    const known = this.#known.get(id)
    if (known?.isClaimed === false) {
      this.#waiting -= 1
      this.#waitingBytes -= known.message.bytes
    }
    this.#known.delete(id)
  }

  forget(vin: string): void {
    for (const { message } of this.#known.values()) if (isAbout(message, vin)) this.delete(message.id)
  }

  claim(id: string): Claim | undefined | Promise<Claim | undefined> {
    const known = this.#known.get(id)
    if (known !== undefined) return this.#handOut(known)
    return this.#find(id).then((found) => found && this.#handOut(found))
  }

  /** The message waits for its next attempt. */
  reschedule(seq: number, next: NextAttempt, found: KnownMessage | undefined): void | Promise<void> {
    const { attempts, notBefore, deliveries: deliveriesFrom, failure = null } = next
    const deliveries = found?.deliveries ?? 0
    if (found !== undefined) {
      if (deliveriesFrom !== undefined) found.deliveries = deliveriesFrom
      this.#wait(found)
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

  /** The message waits, for the first time or again. When memory is full, the older half of those that wait goes. */
  #wait(known: KnownMessage): void {
    const { id, bytes } = known.message
    this.delete(id)
    known.isClaimed = false
    this.#known.set(id, known)
    this.#waiting += 1
    this.#waitingBytes += bytes
    if (this.#waitingBytes <= mostBytes && this.#waiting <= mostMessages) return
    // In the order in which they began to wait.
    for (const { message: oldest, isClaimed } of this.#known.values()) {
      if (this.#waitingBytes <= mostBytes / 2 && this.#waiting <= mostMessages / 2) break
      if (!isClaimed) this.delete(oldest.id)
    }
  }

  async #find(id: string): Promise<KnownMessage | undefined> {
    const { file, commits, health } = this.#parts
    const seq = seqOf(id)
    if (commits.isSettling(seq)) return undefined
    if (commits.isChanging(seq)) await commits.flush()
    const found = await health.read(() => file.find(seq))
    if (found?.message.id !== id) return undefined
    return this.#known.get(id) ?? { ...found, seq, isClaimed: false }
  }

  /** Counts the claim, and writes it first when the message may end the process. */
  #handOut(found: KnownMessage): Claim | Promise<Claim> {
    const { commits } = this.#parts
    const { message, seq, deliveries: before, replayed, replay, changed } = found
    const known = { lane: message.lane, seq, deliveries: before, replayed }
    // It is handed out for the first time, and no process has crashed since it came.
    const isNew = before === 0 && !replayed && seq > this.#suspects.upTo
    const deliveries = isNew ? 0 : this.#suspects.deliveriesOf(known)
    found.deliveries = deliveries + 1
    this.delete(message.id)
    found.isClaimed = true
    this.#known.set(message.id, found)
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
