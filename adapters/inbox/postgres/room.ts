import { elapsedMs } from '../../../src/base/clock.ts'
import type { InboxMessage, InboxHost } from '../../../src/inbox/inbox.ts'
import type { Database } from './client.ts'
import type { Tables } from './tables.ts'

/** The time between two counts of what waits, in milliseconds. */
const everyMs = 5_000

/**
 * How many places a branch has left within its limits. What waits is counted again and again, because other processes put and settle, too: so a limit can
 * be exceeded by what they put in some seconds. No put waits for a count.
 */
export class Room {
  readonly #db: Database
  readonly #tables: Tables
  readonly #most: { readonly messages: number; readonly bytes: number }
  #messages = 0
  #bytes = 0
  #countedAtMs = -Infinity
  #isCounting = false
  /** What had no place has none when it is written again, because an answer was lost. */
  readonly #refused = new WeakSet<InboxMessage>()

  constructor(
    db: Database,
    tables: Tables,
    { pendingMessages = Infinity, pendingBytes = Infinity }: InboxHost['limits'],
  ) {
    this.#db = db
    this.#tables = tables
    this.#most = { messages: pendingMessages, bytes: pendingBytes }
  }

  get #isLimited(): boolean {
    return this.#most.messages < Infinity || this.#most.bytes < Infinity
  }

  /** The places in the list of the messages for which there is no room. */
  full(messages: readonly InboxMessage[]): readonly number[] {
    if (!this.#isLimited) return []
    this.#look()
    let { messages: left, bytes: leftBytes } = this.#most
    left -= this.#messages
    leftBytes -= this.#bytes
    const full: number[] = []
    for (const [at, message] of messages.entries()) {
      if (message.kind === 'timer') continue
      if (this.#refused.has(message) || left < 1 || leftBytes < message.bytes) {
        this.#refused.add(message)
        full.push(at)
        continue
      }
      left -= 1
      leftBytes -= message.bytes
    }
    return full
  }

  /** This process has given places. */
  placed(messages: readonly InboxMessage[]): void {
    this.#messages += messages.length
    for (const { bytes } of messages) this.#bytes += bytes
  }

  /** This process has settled a message. */
  released(bytes: number): void {
    this.#messages = Math.max(0, this.#messages - 1)
    this.#bytes = Math.max(0, this.#bytes - bytes)
  }

  #look(): void {
    const nowMs = elapsedMs(this.#db.clock)
    if (this.#isCounting || nowMs - this.#countedAtMs < everyMs) return
    this.#countedAtMs = nowMs
    this.#isCounting = true
    // What it cannot count now, it counts later.
    void this.count()
      .catch(() => {})
      .finally(() => (this.#isCounting = false))
  }

  async count(): Promise<void> {
    if (!this.#isLimited) return
    const { schema } = this.#db
    const { waiting } = this.#tables
    const before = this.#messages
    const beforeBytes = this.#bytes
    const [row] = await this.#db.run(
      this.#most.bytes < Infinity
        ? `SELECT count(*)::text AS messages, coalesce(sum(m.bytes), 0)::text AS bytes FROM ${waiting} w JOIN ${schema}.message m ON m.id = w.id`
        : `SELECT count(*)::text AS messages, '0' AS bytes FROM ${waiting}`,
    )
    // What was placed during the count may be in it or not.
    this.#messages = Number(row?.['messages']) + Math.max(0, this.#messages - before)
    this.#bytes = Number(row?.['bytes']) + Math.max(0, this.#bytes - beforeBytes)
  }
}
