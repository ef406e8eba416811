import { backgroundTimer, type Clock } from '../base/clock.ts'

/** A message that waits. */
interface Item {
  readonly id: string
}

/** The receiver, for the window of its inbox. */
export interface WindowHost<Waiting extends Item> {
  /** Gives messages their places in their lanes. */
  readonly add: (page: readonly Waiting[]) => void
  /** The number of messages in lanes. */
  readonly messages: () => number
  /** Lets no new message in until the promise resolves. */
  readonly holdBack: (until: Promise<void>) => void
  readonly failed: (error: unknown) => void
  readonly clock: Clock
}

/** How long to wait before reading again, after the inbox failed, in milliseconds. */
const failedMs = 5_000

/** The most messages in lanes, when more wait. */
const mostMessages = 10_000

/**
 * For an inbox that holds more messages than fit into memory: its oldest messages have places in lanes. The others are only in the inbox,
 * and are read from it when there is room. `read` returns the messages that wait after an id, in the order of ids, in pages.
 *
 * @example
 * ```ts
 * import { type Inbox, type Waiting, Window } from 'fleethook/extend'
 *
 * export const windowOf = (read: (after: string | undefined) => AsyncIterable<readonly Waiting[]>): Inbox['window'] =>
 *   (host) => new Window(host, read)
 * ```
 */
export class Window<Waiting extends Item> {
  readonly #host: WindowHost<Waiting>
  readonly #from: (after: string | undefined) => AsyncIterable<readonly Waiting[]>
  /** Messages up to this id have been given places. */
  #upTo: string | undefined
  #pages: AsyncIterator<readonly Waiting[]> | undefined
  #isReading = false
  /** Messages after `#upTo` wait in the inbox only. */
  isBehind = false
  /** Calls of `put` under way whose messages get no places. */
  #underWay = 0
  /** Messages were put since the last reading began. */
  #hasMore = false
  /**
   * Messages that are put without a place while a page may be read. A branch gets ids out of order, so one can be smaller than the last of a page
   * that lacks it, and would not be read any more.
   */
  readonly #beside = new Map<string, { readonly message: Waiting; isStored: boolean }>()
  #isReadingPage = false
  #onChange: (() => void) | undefined

  constructor(host: WindowHost<Waiting>, read: (after: string | undefined) => AsyncIterable<readonly Waiting[]>) {
    this.#host = host
    this.#from = read
  }

  /** Goes on with the messages that an earlier process left. Resolves when the first of them have their places. */
  async recover(pages: AsyncIterable<readonly Waiting[]>): Promise<void> {
    this.isBehind = true
    this.#pages = pages[Symbol.asyncIterator]()
    await this.#read()
  }

  /** The inbox has these new messages, in the order of ids. Returns the messages that get their places now. The others are read from it later. */
  offered(messages: readonly Waiting[]): readonly Waiting[] {
    if (this.takes(messages.at(-1)?.id ?? '')) return messages
    this.#hasMore = true
    // No page will have messages up to `#upTo`.
    const passed = messages.filter(({ id }) => this.#upTo !== undefined && id <= this.#upTo)
    if (this.#isReadingPage)
      for (const message of messages)
        if (!passed.includes(message)) this.#beside.set(message.id, { message, isStored: true })
    this.refill()
    return passed
  }

  /** Whether a message that the inbox has is given its place now. If not, it is read from the inbox later. */
  includes(id: string): boolean {
    if (!this.isBehind || (this.#upTo !== undefined && id <= this.#upTo)) return true
    this.#hasMore = true
    return false
  }

  /** Whether new messages get their places now. If not, pass them to {@link put}. Call it before each `put` of the inbox. */
  takes(lastId: string): boolean {
    if (this.#host.messages() >= mostMessages) this.isBehind = true
    const isNext = this.#upTo === undefined || lastId > this.#upTo
    if (this.isBehind) return !isNext
    if (isNext) this.#upTo = lastId
    return true
  }

  /** Stores messages that get no places. */
  async put(messages: readonly Waiting[], store: () => void | Promise<void>): Promise<void> {
    this.#underWay += 1
    this.#hasMore = true
    for (const message of messages) this.#beside.set(message.id, { message, isStored: false })
    try {
      await store()
      for (const { id } of messages) {
        const beside = this.#beside.get(id)
        if (beside !== undefined) beside.isStored = true
      }
      if (!this.#isReadingPage) this.#placeBeside()
    } catch (error) {
      for (const { id } of messages) this.#beside.delete(id)
      throw error
    } finally {
      this.#underWay -= 1
      this.#onChange?.()
      this.refill()
    }
  }

  /** A message is over, so there may be room. */
  refill(): void {
    if (this.isBehind && !this.#isReading && this.#host.messages() <= mostMessages / 2) void this.#read()
  }

  async #read(): Promise<void> {
    const { messages, holdBack, failed, clock } = this.#host
    this.#isReading = true
    try {
      while (this.isBehind && messages() < mostMessages) {
        if (await this.#readPage()) continue
        const closing = this.#close()
        holdBack(closing)
        await closing
      }
    } catch (error) {
      failed(error)
      this.#pages = undefined
      backgroundTimer(clock, failedMs, () => this.refill())
    }
    this.#isReading = false
  }

  /** Resolves to whether there may be another page. */
  async #readPage(): Promise<boolean> {
    this.#pages ??= this.#from(this.#upTo)[Symbol.asyncIterator]()
    this.#isReadingPage = true
    try {
      const { value: page, done } = await this.#pages.next()
      if (done === true) {
        this.#pages = undefined
        return false
      }
      for (const { id } of page) this.#beside.delete(id)
      this.#host.add(page)
      this.#upTo = page.at(-1)?.id ?? this.#upTo
      return true
    } finally {
      this.#isReadingPage = false
      this.#placeBeside()
    }
  }

  /** Gives places to stored messages that no page will have, and forgets the others, which will be read. */
  #placeBeside(): void {
    const upTo = this.#upTo
    const passed: Waiting[] = []
    for (const [id, { message, isStored }] of this.#beside) {
      if (!isStored) continue
      this.#beside.delete(id)
      if (upTo !== undefined && id <= upTo) passed.push(message)
    }
    if (passed.length > 0) this.#host.add(passed.toSorted((one, other) => (one.id < other.id ? -1 : 1)))
  }

  /** Everything was read, except for messages that have arrived since. No more arrive until this resolves. */
  async #close(): Promise<void> {
    do {
      // A reader cannot keep its receiver from putting more.
      if (this.#host.messages() >= mostMessages) return
      while (this.#underWay > 0)
        await new Promise<void>((resolve) => {
          this.#onChange = resolve
        })
      if (!this.#hasMore) break
      this.#hasMore = false
      while (await this.#readPage());
    } while (this.#underWay > 0 || this.#hasMore)
    this.isBehind = false
  }
}
