import { type Clock, elapsedMs, pause } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import { type Inbox, type InboxMessage, isAbout } from '../../../src/inbox/inbox.ts'

/** The server, as far as messages go there. */
export interface Server {
  /** Its name, for people. */
  readonly name: string
  /** Messages keep their order within a way. The way of a lane stays the same. */
  wayOf(lane: string): number
  /**
   * Keeps messages in the order of the calls. Rejects as `put` of an inbox, with `body_too_large` or `message_refused` for what it never takes.
   * `moved`: they waited in a file, and the server may have some of them already. It keeps each once.
   */
  put(messages: readonly InboxMessage[], moved?: Moved): Promise<void>
  /** Sends nothing again of what `put` was given for this way and has not confirmed: it is in the file now. */
  takeBack(way: number): void
}

/** How messages of a file reached it. */
export interface Moved {
  /** See `Claim.replay`. Only for a message that an operator made wait again. */
  readonly replay?: string | undefined
  readonly isReplayed: boolean
}

export interface WayOptions {
  readonly number: number
  readonly clock: Clock
  readonly server: Server
  readonly file: Inbox
  /** Puts messages into the file. `isPlaced`: they get their places now; the others are read from the file when there is room. */
  readonly keep: (messages: readonly InboxMessage[]) => { readonly stored: Promise<void>; readonly isPlaced: boolean }
  /** Called after each part that the server took. */
  readonly moved: () => void
  /** The server did not take messages. */
  readonly failed: (error: unknown) => void
  /** A message that the server never takes is a dead letter in the file. */
  readonly buried: (message: InboxMessage, error: FleethookError) => void
}

/** Messages of one call that the server has not confirmed. */
interface Sent {
  readonly messages: readonly InboxMessage[]
  readonly sinceMs: number
  readonly resolve: () => void
  readonly reject: (error: unknown) => void
}

/** A message in the file, in its place. */
interface Placed {
  readonly id: string
  /** Whether the file has it. */
  readonly kept: Promise<boolean>
}

/** The messages that are on their way to the server. */
interface Hand {
  messages: readonly InboxMessage[]
  readonly how: Moved
  /** The number of places that they take, with the places of messages that are gone. */
  readonly places: number
}

/** How long the server may take for a message before the file keeps it, in milliseconds. */
export const patienceMs = 1_000
/** A server that is slower than this while messages move is not trusted with new ones yet, in milliseconds. */
const slowMs = patienceMs / 2
/** How long a server has to be quick first, in milliseconds. It doubles each time that it becomes slow again within the longest. */
const leastRestMs = 1_000
const mostRestMs = 60_000

/** The most messages that move at once, and their bytes. */
const atOnce = 200
const atOnceBytes = 700_000
/** The pause before the same messages are sent again, in milliseconds. */
const pauseMs = 500

/** The claims that may be under way together: their messages are in memory. */
const claimedTogether = 16

const plain: Moved = { isReplayed: false }
const isThere = Promise.resolve(true)

/**
 * The messages of some vehicles, on their way to the server: all messages with Postgres, the messages of one partition with Kafka. A way has two modes:
 *
 * | mode     | new messages go                      | it changes                                                                                    |
 * | -------- | ------------------------------------ | --------------------------------------------------------------------------------------------- |
 * | straight | to the server                        | by `turnAside`, with all that the server has not confirmed, when the oldest waited a second   |
 * | aside    | to the file, behind what waits there | by `mayGoStraight`, when the file has none of its messages and the server has been quick long enough |
 *
 * While aside, `#move` sends the oldest messages of the file, and the same ones again until the server confirms them.
 */
export class Way {
  readonly #options: WayOptions
  readonly #sent = new Set<Sent>()
  #queue: Placed[] = []
  #hand: Hand | undefined
  #isAside: boolean
  /** When the server has been quick long enough, on the monotonic clock. */
  #calmAtMs = 0
  #restMs = leastRestMs
  #straightSinceMs = -Infinity
  /** A part was refused: each of these next messages goes alone. */
  #alone = 0
  #moving: Promise<void> | undefined
  /** The server took the last part. */
  #isTaken = true
  readonly #closing = new AbortController()

  /** `isAside`: the file may have messages of this way. */
  constructor(options: WayOptions, isAside: boolean) {
    this.#options = options
    this.#isAside = isAside
  }

  get isAside(): boolean {
    return this.#isAside
  }

  /** The messages in their places. */
  get placed(): number {
    return this.#queue.length
  }

  /** Whether the server has not confirmed all that it was sent. */
  get isWaiting(): boolean {
    return this.#sent.size > 0
  }

  /** Resolves when nothing moves any more. `undefined`: nothing does, or the server did not take the last part. */
  get moving(): Promise<void> | undefined {
    return this.#isTaken ? this.#moving : undefined
  }

  put(messages: readonly InboxMessage[]): Promise<void> {
    return this.#isAside ? this.#keep(messages) : this.#send(messages)
  }

  /** Messages that are in the file already, behind the messages with places. */
  add(ids: readonly string[]): void {
    for (const id of ids) this.#queue.push({ id, kept: isThere })
    this.#isAside = true
    this.#go()
  }

  /** Whether the oldest message waits for too long. */
  isLate(nowMs: number): boolean {
    for (const { sinceMs } of this.#sent) return nowMs - sinceMs >= patienceMs
    return false
  }

  /** From now on the file keeps messages. Unconfirmed messages go first. */
  turnAside(nowMs: number): void {
    const { server, number } = this.#options
    if (nowMs - this.#straightSinceMs > mostRestMs) this.#restMs = leastRestMs
    else this.#restMs = Math.min(mostRestMs, 2 * this.#restMs)
    this.#calmAtMs = nowMs + this.#restMs
    this.#isAside = true
    this.#isTaken = false
    const sent = [...this.#sent]
    this.#sent.clear()
    server.takeBack(number)
    for (const { messages, resolve, reject } of sent) this.#keep(messages).then(resolve, reject)
  }

  /** Only while the file has none of its messages that are not in their places. */
  mayGoStraight(nowMs: number): boolean {
    return this.#queue.length === 0 && nowMs >= this.#calmAtMs
  }

  goStraight(nowMs: number): void {
    this.#isAside = false
    this.#straightSinceMs = nowMs
  }

  /** A vehicle was erased from the file: what is on its way of it is not sent again. */
  forget(vin: string): void {
    if (this.#hand === undefined) return
    const others = this.#hand.messages.filter((message) => !isAbout(message, vin))
    if (others.length === this.#hand.messages.length) return
    this.#hand.messages = others
    this.#options.server.takeBack(this.#options.number)
  }

  /** What has not moved stays in the file. */
  close(): void {
    this.#closing.abort()
    if (this.#isAside) this.#options.server.takeBack(this.#options.number)
  }

  #send(messages: readonly InboxMessage[]): Promise<void> {
    const { server, clock, failed } = this.#options
    return new Promise((resolve, reject) => {
      const sent = { messages, sinceMs: elapsedMs(clock), resolve, reject }
      this.#sent.add(sent)
      server.put(messages).then(
        () => {
          if (this.#sent.delete(sent)) resolve()
        },
        (error: unknown) => {
          if (!this.#sent.has(sent)) return
          if (isAboutMessages(error)) {
            this.#sent.delete(sent)
            reject(error) // oxlint-disable-line prefer-promise-reject-errors -- it is what the server said
            return
          }
          this.turnAside(elapsedMs(clock))
          failed(error)
        },
      )
    })
  }

  #keep(messages: readonly InboxMessage[]): Promise<void> {
    const { stored, isPlaced } = this.#options.keep(messages)
    if (!isPlaced) return stored
    const kept = stored.then(
      () => true,
      () => false,
    )
    for (const { id } of messages) this.#queue.push({ id, kept })
    this.#go()
    return stored
  }

  #go(): void {
    this.#moving ??= this.#move().finally(() => {
      this.#moving = undefined
      if (this.#queue.length > 0 && !this.#closing.signal.aborted) this.#go()
    })
  }

  async #move(): Promise<void> {
    const { clock } = this.#options
    const { signal } = this.#closing
    while (this.#queue.length > 0 && !signal.aborted) {
      // A file that fails says so itself.
      const result = await this.#moveSome().catch(() => 'later')
      if (result === 'later') await pause(clock, pauseMs, signal).catch(() => {})
    }
  }

  async #moveSome(): Promise<'moved' | 'again' | 'later'> {
    const { file, moved } = this.#options
    const hand = (this.#hand ??= await this.#take(this.#alone > 0 ? 1 : atOnce))
    const result = hand.messages.length === 0 ? 'moved' : await this.#deliver(hand)
    if (result !== 'moved') return result
    for (const { id } of hand.messages) await file.settle(id)
    this.#hand = undefined
    this.#queue = this.#queue.slice(hand.places)
    this.#alone = Math.max(0, this.#alone - hand.places)
    moved()
    return result
  }

  /** The oldest messages of the file. A replayed message goes alone. */
  async #take(most: number): Promise<Hand> {
    const { file } = this.#options
    const messages: InboxMessage[] = []
    let [places, bytes] = [0, 0]
    while (places < Math.min(most, this.#queue.length) && bytes < atOnceBytes) {
      const next = this.#queue.slice(places, Math.min(most, places + claimedTogether))
      // Together, because after a crash each claim is written first.
      const claims = await Promise.all(next.map(async ({ id, kept }) => ((await kept) ? file.claim(id) : undefined)))
      for (const claim of claims) {
        if (claim?.replayed === true && messages.length === 0)
          return { messages: [claim.message], how: { isReplayed: true, replay: claim.replay }, places: places + 1 }
        if (claim?.replayed === true || bytes >= atOnceBytes) return { messages, how: plain, places }
        places += 1
        if (claim === undefined) continue
        messages.push(claim.message)
        bytes += claim.message.bytes
      }
    }
    return { messages, how: plain, places }
  }

  async #deliver(hand: Hand): Promise<'moved' | 'again' | 'later'> {
    const { clock, server, failed } = this.#options
    const { messages } = hand
    const sinceMs = elapsedMs(clock)
    try {
      await server.put(messages, hand.how)
      this.#isTaken = true
      const nowMs = elapsedMs(clock)
      if (nowMs - sinceMs >= slowMs) this.#calmAtMs = nowMs + this.#restMs
      return 'moved'
    } catch (error) {
      if (this.#closing.signal.aborted) return 'later'
      if (hand.messages !== messages) return 'again'
      if (isAboutMessages(error)) return this.#refused(hand, error)
      this.#isTaken = false
      failed(error)
      return 'later'
    }
  }

  /** The server never takes one of these messages. */
  async #refused(hand: Hand, error: FleethookError): Promise<'moved' | 'again'> {
    const { clock, file, buried } = this.#options
    const [message, second] = hand.messages
    if (message === undefined || second !== undefined) {
      this.#alone = hand.places
      this.#hand = undefined
      return 'again'
    }
    await file.settle(message.id, { as: 'dead', reason: { error: error.message, attempts: 0, diedAt: clock.now() } })
    buried(message, error)
    hand.messages = []
    return 'moved'
  }
}

/** Whether an error says that the server never takes these messages. */
export const isAboutMessages = (error: unknown): error is FleethookError =>
  error instanceof FleethookError && (error.code === 'body_too_large' || error.code === 'message_refused')
