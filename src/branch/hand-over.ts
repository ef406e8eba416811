import { type Clock, elapsedMs, type Timer } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import type { Message } from '../core/message.ts'
import type { GapReason, TimerEvent } from '../events/event.ts'
import { gapOf } from '../events/gap.ts'
import { isBound } from '../hosting/execution-context.ts'
import type { Refusal } from '../http/answers.ts'
import type { InboxGap, InboxMessage } from '../inbox/inbox.ts'
import { vinOf } from '../inbox/receipts.ts'
import type { HostedReceiver } from '../receiver/hosted.ts'

/** The branch is slow when its inbox has put nothing for this long, or not a message for that long, in milliseconds. */
const patienceMs = 1_000
const longestMs = 5_000
/** The most bytes that are on their way to the inbox of a branch. */
const mostBytes = 64 * 1_048_576

/** A branch that keeps messages stops and starts with the receiver, and reports that itself. */
const ofStops: readonly GapReason[] = ['stopped', 'restarted']

/**
 * Hands the messages of a receiver over to a branch: as soon as the receiver has them where it can, and before their own handlers run. The receiver
 * never waits long, and a message that the branch cannot keep is a gap there.
 */
export class HandOver {
  readonly #front: HostedReceiver
  readonly #branch: HostedReceiver
  readonly #clock: Clock
  #bytes = 0
  /** Messages that were handed over (`true`), or are on their way. */
  readonly #given = new WeakMap<Message, true | Promise<void>>()
  /** By lane: resolves when the newest message is put that the branch is asked about, or that waits behind such a message. */
  readonly #asked = new Map<string, Promise<unknown>>()
  /** When its inbox last answered. */
  #answeredMs = -Infinity
  /** Since when nobody waits for the branch, because it is slow. A crash in this time is a gap of the branch. */
  #slowSinceMs: number | undefined

  constructor(front: HostedReceiver, branch: HostedReceiver) {
    this.#front = front
    this.#branch = branch
    this.#clock = branch.settings.clock
    branch.intake.timersBy = this.#timers
  }

  /**
   * A timer of the branch waits behind messages of its vehicle that the receiver has: they may say that it is not due. Where they can wait in the
   * inbox of the receiver, it takes their way.
   */
  readonly #timers = (timers: readonly TimerEvent[]): Promise<boolean> => {
    const { intake } = this.#front
    const { branch } = this.#branch.settings
    // All that it had is handed over.
    if (intake.isDraining) return this.#branch.intake.putTimers(timers)
    return intake.putTimers(timers.map((timer) => ({ ...timer, meta: { branch } })))
  }

  /** The turn of the message. */
  take(given: Message): undefined | Promise<void> {
    const known = this.#given.get(given)
    if (known !== undefined) return known === true ? undefined : this.#inTime(known, given.request)
    const { claim, event, request } = given
    // Skip the replay of a handled message. A dead letter may be new to the branch: processes may have ended before it was handed over.
    if (claim === undefined || event === undefined || claim.replay !== undefined) return undefined
    // A timer of the receiver, or of another branch.
    if (event.topic === 'timer' && event.meta['branch'] !== this.#branch.settings.branch) return undefined
    if (event.topic === 'gap') {
      const isKnown = ofStops.includes(event.reason) && this.#branch.intake.durability !== 'memory'
      if (event.reason === 'stalled' || isKnown) return undefined
    }
    const { id, lane, receivedAt, door, kind, text, bytes } = claim.message
    const message: InboxMessage = { id, lane, receivedAt, door, kind, text, bytes, event }
    if (this.#bytes + bytes > mostBytes) {
      this.#noteMissed(message)
      this.#noteRefused(message, { error: 'inbox_unavailable', hint: slowHint })
      return undefined
    }
    const mayBeThere = claim.replayed || given.delivery().redelivered
    return this.#inTime(this.#put(given, message, mayBeThere), request)
  }

  /**
   * Messages of a vehicle are put in their order. While the branch is asked about a message, later messages wait until it is put, even when
   * the receiver is done with it because the branch is slow.
   */
  #put(given: Message, message: InboxMessage, mayBeThere: boolean): Promise<void> {
    const { intake } = this.#branch
    const { request } = given
    const isAtOnce =
      intake.readiness.isReady && message.kind === 'wire' && !mayBeThere && !this.#asked.has(message.lane)
    const put = isAtOnce ? intake.put([message], request) : this.#keep(given, message, mayBeThere)
    const kept = this.#kept(message, Promise.resolve(put))
    this.#given.set(given, kept)
    const known = kept.then(
      () => void this.#given.set(given, true),
      () => void this.#given.delete(given),
    )
    // The receiver may not wait for it.
    request.context?.watch?.(known)
    return kept
  }

  async #keep(given: Message, message: InboxMessage, mayBeThere: boolean): Promise<Refusal | undefined> {
    const { intake } = this.#branch
    const { lane } = message
    const { request: from } = given
    // Keep only the last answer: a chain of earlier answers would grow while the lane never empties.
    const asked = Promise.all([this.#ask(message, mayBeThere), this.#asked.get(lane)]).then(([answer]) => answer)
    this.#asked.set(lane, asked)
    const answer = await asked
    if (this.#asked.get(lane) === asked) this.#asked.delete(lane)
    // The branch has it, or its vehicle was erased since.
    if (answer === 'there' || given.isGone) return undefined
    if (answer === 'closed') return { error: 'inbox_unavailable' }
    if (message.kind === 'wire') return intake.put([message], from)
    if (await intake.putInternal(message, from)) return undefined
    this.#noteMissed(message)
    return { error: 'inbox_unavailable' }
  }

  /** Whether the branch has the message. Never rejects. */
  async #ask({ id }: InboxMessage, mayBeThere: boolean): Promise<'there' | 'missing' | 'closed'> {
    const { intake } = this.#branch
    // It notes the gap itself.
    if (!intake.readiness.isReady && !(await intake.readiness.becomeReady())) return 'closed'
    const isThere = mayBeThere && (await intake.operator.messages.get(id).catch(() => undefined)) !== undefined
    return isThere ? 'there' : 'missing'
  }

  /**
   * Waits until the branch has the message, or until it is slow. Where several processes handle, it waits for as long as it takes: if this one ends,
   * another one goes on, which neither knows of messages that only this one has, nor waits for them.
   */
  async #inTime(kept: Promise<void>, { context }: Message['request']): Promise<void> {
    const goesOn = this.#goesOn
    if (this.#slowSinceMs !== undefined) {
      if (!goesOn) return kept
      const ended = kept.catch(() => {})
      if (isBound(context)) context.waitUntil(ended)
      return
    }
    let timer: Timer | undefined
    const sinceMs = elapsedMs(this.#clock)
    const late = new Promise<void>((resolve) => {
      const wait = (ms: number): void => void (timer = this.#clock.after(ms, look))
      const look = (): void => {
        // A branch that opens its file has not answered yet.
        const quietMs = this.#branch.intake.readiness.isReady ? patienceMs : longestMs
        const untilMs = Math.min(sinceMs + longestMs, Math.max(sinceMs, this.#answeredMs) + quietMs)
        const leftMs = untilMs - elapsedMs(this.#clock)
        if (leftMs > 0) wait(leftMs)
        else resolve()
      }
      wait(patienceMs)
    }).then(() => this.#noteSlow())
    try {
      await (goesOn ? Promise.race([kept, late]) : kept)
    } finally {
      timer?.cancel()
    }
  }

  #noteSlow(): void {
    if (this.#slowSinceMs !== undefined) return
    this.#slowSinceMs = elapsedMs(this.#clock)
    const { log } = this.#branch.settings
    // What to do about `the inbox of the branch is slow, so the receiver does not wait until it has a message`, `the inbox of the branch is fast
    // enough again`: Its disk or database takes more than a second per message. A crash in this time is a gap of the [branch](branches.md).
    if (this.#goesOn) log.warn('the inbox of the branch is slow, so the receiver does not wait until it has a message')
    // What to do: Has a session locked its tables, or is its server slow? Vehicles wait until it has their messages, or refuses them.
    else log.warn('the inbox of the branch is slow, and the receiver waits until it has a message')
  }

  /** No other process goes on after a crash of this one, so it need not wait for a slow branch. */
  get #goesOn(): boolean {
    return this.#front.settings.inbox.place === undefined
  }

  async #kept(message: InboxMessage, put: Promise<Refusal | undefined>): Promise<void> {
    const { lifecycle } = this.#branch.intake
    const sinceMs = elapsedMs(this.#clock)
    // The drain of the branch waits for it.
    lifecycle.enter()
    this.#bytes += message.bytes
    const refusal = await put.finally(() => {
      this.#bytes -= message.bytes
      lifecycle.leave()
    })
    const nowMs = elapsedMs(this.#clock)
    this.#answeredMs = nowMs
    const isSlow = nowMs - sinceMs >= patienceMs
    // An inbox that is down refuses each message only after its timeout, so the receiver waits for that once.
    if (isSlow && refusal !== undefined) this.#noteSlow()
    if (!isSlow && refusal === undefined && this.#slowSinceMs !== undefined) {
      const ms = Math.round(nowMs - this.#slowSinceMs)
      this.#slowSinceMs = undefined
      this.#branch.settings.log.warn('the inbox of the branch is fast enough again', { ms })
    }
    if (refusal?.error === 'draining' && this.#front.intake.lifecycle.isDraining)
      throw new FleethookError('inbox_unavailable', 'The branch has stopped. The next process hands the message over.')
    if (refusal !== undefined) this.#noteRefused(message, refusal)
  }

  #noteRefused(message: InboxMessage, refusal: Refusal): void {
    this.#branch.reports.refusals.note(refusal, { door: 'root', messages: [message] })
  }

  #noteMissed({ event, lane, receivedAt }: InboxMessage): void {
    const lost: InboxGap = { vin: vinOf(lane), reason: 'inbox_unavailable', fromMs: receivedAt, missed: 1 }
    this.#branch.intake.gaps.note(event?.topic === 'gap' ? gapOf(event) : lost)
  }
}

const slowHint = 'The inbox of the branch does not answer, and 64 MiB wait for it.'
