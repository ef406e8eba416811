import type { Clock } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import type { Log } from '../../../src/base/log.ts'
import type { Inbox, InboxMessage } from '../../../src/inbox/inbox.ts'
import type { Entry } from './writer.ts'

interface SpoolOptions {
  readonly inbox: Inbox
  readonly clock: Clock
  readonly log: Log
  readonly partitionOf: (lane: string) => number
  /** Appends messages of one partition to the topic. Rejects when the brokers do not confirm in time. */
  readonly append: (partition: number, messages: readonly InboxMessage[]) => Promise<void>
  readonly failed: (error: unknown) => void
}

/** A message of the file. */
interface Spooled {
  readonly id: string
  /** Resolves when the file has it, to whether it does. */
  readonly kept: Promise<boolean>
}

/** The most messages that go back to the topic in one request. */
const atOnce = 200
const pauseMs = 500

/**
 * Messages on the disk of this machine while the brokers do not confirm. A partition goes through the file as a whole, from the
 * first message that was not confirmed to the last one before the file is empty again, so its order stays.
 */
export class Spool {
  readonly #options: SpoolOptions
  readonly #partitions = new Map<number, Spooled[]>()
  #isClosed = false
  #count = 0

  constructor(options: SpoolOptions) {
    this.#options = options
  }

  /** Opens the file. What an earlier process left there goes to the topic before anything new. Resolves to the last id. */
  async open(): Promise<string | undefined> {
    const { inbox, partitionOf } = this.#options
    const { lastId, waiting } = await inbox.open()
    for await (const page of waiting)
      for (const { id, lane } of page) this.#queueOf(partitionOf(lane)).push({ id, kept: Promise.resolve(true) })
    this.#count = inbox.usage().messages
    return lastId
  }

  /** Whether the messages of this partition go through the file. */
  has(partition: number): boolean {
    return this.#partitions.has(partition)
  }

  /** The number of messages that wait in the file. */
  get size(): number {
    return this.#count
  }

  /** Keeps messages of one partition behind those that are there. Resolves when they are on the disk. */
  async put(partition: number, messages: readonly InboxMessage[]): Promise<void> {
    const stored = this.#options.inbox.put(messages)
    const kept = stored.then(
      () => true,
      () => false,
    )
    const queue = this.#queueOf(partition)
    for (const { id } of messages) queue.push({ id, kept })
    await stored
    this.#count += messages.length
  }

  /** Takes what the brokers did not confirm, and all that waits behind it. */
  divert(partition: number, entries: readonly Entry[]): void {
    if (!this.has(partition)) {
      this.#options.log.warn('the brokers do not confirm: until they do, a 2xx means the disk of this machine', {
        partition,
      })
    }
    const messages = entries.flatMap(({ messages }) => messages ?? [])
    this.put(partition, messages).then(
      () => {
        for (const { resolve } of entries) resolve()
      },
      (error: unknown) => {
        const failure =
          error instanceof FleethookError
            ? error
            : new FleethookError('inbox_unavailable', 'The spool failed.', { cause: error })
        for (const { reject } of entries) reject(failure)
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
    // Not before the caller has filled it.
    queueMicrotask(() => void this.#forward(partition, queue))
    return queue
  }

  /** Sends the oldest first, until nothing is left. Then messages go straight to the topic again. */
  async #forward(partition: number, queue: Spooled[]): Promise<void> {
    const { inbox, log } = this.#options
    while (queue.length > 0 && !this.#isClosed) {
      const batch = queue.slice(0, atOnce)
      const messages: InboxMessage[] = []
      try {
        for (const { id, kept } of batch) {
          if (!(await kept)) continue
          const claim = await inbox.claim(id)
          if (claim !== undefined) messages.push(claim.message)
        }
        await this.#options.append(partition, messages)
        for (const { id } of messages) await inbox.settle(id)
        queue.splice(0, batch.length)
        this.#count -= messages.length
      } catch (error) {
        if (this.#isClosed) return
        this.#options.failed(error)
        await new Promise<void>((resolve) => {
          this.#options.clock.after(pauseMs, resolve)
        })
      }
    }
    if (this.#isClosed) return
    this.#partitions.delete(partition)
    if (this.#partitions.size === 0)
      log.warn('the brokers have all messages again that were on the disk of this machine')
  }
}
