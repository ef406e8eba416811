import { type Clock, pause } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import type { Log } from '../../../src/base/log.ts'
import type { Inbox, InboxMessage, Opened } from '../../../src/inbox/inbox.ts'
import { type Append, TooLargeError } from './writer.ts'

interface SpoolOptions {
  readonly inbox: Inbox
  readonly clock: Clock
  readonly log: Log
  readonly partitionOf: (lane: string) => number
  /** Appends to the topic. Rejects when brokers do not confirm, and with {@link TooLargeError} because of a size. */
  readonly append: (partition: number, messages: readonly InboxMessage[]) => Promise<void>
  readonly failed: (error: unknown) => void
}

interface Spooled {
  readonly id: string
  /** Resolves to whether the file has kept it. */
  readonly kept: Promise<boolean>
}

/** The most messages of a partition that are forwarded to the topic at once, and their bytes. */
const atOnce = 200
const atOnceBytes = 2 * 1_048_576
const pauseMs = 500

/** Keeps messages on disk while brokers do not confirm. Until it is empty, all of a partition go through it. */
export class Spool {
  readonly #options: SpoolOptions
  readonly #partitions = new Map<number, Spooled[]>()
  #isClosed = false

  constructor(options: SpoolOptions) {
    this.#options = options
  }

  /** Opens the file. Messages that an earlier process left there go to the topic before new ones. */
  async open(): Promise<Pick<Opened, 'lastId' | 'gaps'>> {
    const { inbox, partitionOf } = this.#options
    const opened = await inbox.open()
    const kept = Promise.resolve(true)
    for await (const page of opened.waiting)
      for (const { id, lane } of page) this.#queueOf(partitionOf(lane)).push({ id, kept })
    return opened
  }

  /** Whether the messages of this partition go through the file. */
  has(partition: number): boolean {
    return this.#partitions.has(partition)
  }

  get size(): number {
    return this.#options.inbox.usage().messages
  }

  /** Adds messages to the end of a partition's queue. Resolves when they are on the disk. */
  async put(partition: number, messages: readonly InboxMessage[]): Promise<void> {
    const stored = (async () => this.#options.inbox.put(messages))()
    const kept = stored.then(
      () => true,
      () => false,
    )
    const queue = this.#queueOf(partition)
    for (const { id } of messages) queue.push({ id, kept })
    await stored
  }

  /** Takes over the appends that the brokers did not confirm, and all that wait behind them. */
  divert(partition: number, appends: readonly Append[]): void {
    if (!this.has(partition)) {
      this.#options.log.warn(
        // What to do: The spool is in use. Look at the brokers.
        'the brokers do not confirm: until they do, a 2xx means that the message is on the disk of this machine',
        { partition },
      )
    }
    const messages = appends.flatMap(({ messages }) => messages ?? [])
    this.put(partition, messages).then(
      () => {
        for (const { resolve } of appends) resolve()
      },
      (error: unknown) => {
        const failure =
          error instanceof FleethookError
            ? error
            : new FleethookError('inbox_unavailable', 'The spool failed.', { cause: error })
        for (const { reject } of appends) reject(failure)
      },
    )
  }

  async close(stoppedAtMs?: number): Promise<void> {
    this.#isClosed = true
    await this.#options.inbox.close(stoppedAtMs)
  }

  #queueOf(partition: number): Spooled[] {
    const known = this.#partitions.get(partition)
    if (known !== undefined) return known
    const queue: Spooled[] = []
    this.#partitions.set(partition, queue)
    // Start only after the caller has filled the queue.
    queueMicrotask(() => void this.#forward(partition, queue))
    return queue
  }

  /** Forwards the oldest messages first, until none is left. Then new messages go straight to the topic again. */
  async #forward(partition: number, queue: Spooled[]): Promise<void> {
    const { inbox, log } = this.#options
    let most = atOnce
    while (queue.length > 0 && !this.#isClosed) {
      const messages: InboxMessage[] = []
      let taken = 0
      let bytes = 0
      try {
        for (const { id, kept } of queue.slice(0, most)) {
          if (bytes >= atOnceBytes) break
          taken += 1
          if (!(await kept)) continue
          const claim = await inbox.claim(id)
          if (claim === undefined) continue
          messages.push(claim.message)
          bytes += claim.message.bytes
        }
        await this.#forwardAll(partition, messages)
        queue.splice(0, taken)
        most = atOnce
      } catch (error) {
        if (this.#isClosed) return
        if (error instanceof TooLargeError && most > 1) {
          most = 1
          continue
        }
        this.#options.failed(error)
        await pause(this.#options.clock, pauseMs)
      }
    }
    if (this.#isClosed) return
    this.#partitions.delete(partition)
    // What to do: Nothing to do.
    if (this.#partitions.size === 0) log.warn('the brokers now have all messages that were on the disk of this machine')
  }

  /** Forwards messages. One alone that the topic refuses because of its size stays in the file, as a dead letter. */
  async #forwardAll(partition: number, messages: readonly InboxMessage[]): Promise<void> {
    const { inbox, log, clock, append } = this.#options
    try {
      await append(partition, messages)
    } catch (error) {
      const [message] = messages
      if (!(error instanceof TooLargeError) || message === undefined || messages.length > 1) throw error
      const reason = { error: error.message, attempts: 0, diedAt: clock.now() }
      await inbox.settle(message.id, { as: 'dead', reason })
      // What to do: See [the spool](several-machines.md#the-spool).
      log.error('the topic refused an acknowledged message because of its size: it is a dead letter in the spool', {
        partition,
        delivery: message.id,
        bytes: message.bytes,
      })
      return
    }
    for (const { id } of messages) await inbox.settle(id)
  }
}
