import { type Clock, elapsedMs, pause } from '../../src/base/clock.ts'
import { throttled } from '../../src/base/log.ts'
import { PassingMap } from '../../src/base/passing-map.ts'
import {
  type Claim,
  done,
  type Inbox,
  type InboxMessage,
  type InboxHost,
  isAbout,
  type Outcome,
  type Settled,
} from '../../src/inbox/inbox.ts'

/** A message that was read and is not settled. */
interface Unsettled<Partition> {
  readonly message: Omit<InboxMessage, 'text'>
  readonly part: Partition
  readonly replayed: boolean
}

/** A partition of this process. */
export interface PartitionOf<Found> {
  /** By id, in their order. */
  readonly unsettled: PassingMap<string, Found>
  /** Messages that were handed out and whose attempt has not ended. */
  readonly hand: Set<Found>
}

/** What this process may handle of the messages that several share. */
export interface SharedPart extends Pick<Inbox, 'settle' | 'usage' | 'close'> {
  open(): Promise<void>
  claim(id: string): Promise<Claim | undefined>
  isStillHeld(id: string): Promise<boolean>
  /** Why health checks of a process that only handles fail. */
  refusing(): 'inbox_unavailable' | undefined
  finish(withinMs: number, breakOff: () => Promise<void>): Promise<void>
}

interface SharedReaderOptions {
  readonly inbox: InboxHost
}

const defaultMessages = 10_000
const defaultBytes = 64 * 1_048_576
const againMs = 250
const changeMs = 50

/**
 * The partitions of this process, as an inbox: which messages were read, and which are in hand. How messages are read, when they may start, and what
 * is written when they end depends on the system.
 */
export abstract class SharedReader<Found extends Unsettled<PartitionOf<Found>>> implements SharedPart {
  protected readonly clock: Clock
  protected readonly say: ReturnType<typeof throttled>
  protected readonly parts: Map<number, Found['part']> = new Map()
  protected readonly byId: PassingMap<string, Found> = new PassingMap()
  protected readonly mostMessages: number
  protected readonly mostBytes: number
  protected bytes = 0
  /** Nothing more starts: the receiver stops. */
  protected isFinishing = false
  protected isStopped = false
  readonly #closing = new AbortController()
  readonly #changed = new Set<() => void>()
  /** How many wait until nothing is in hand. */
  #quieting = 0

  constructor({ inbox }: SharedReaderOptions) {
    this.clock = inbox.clock
    this.say = throttled(inbox.log, inbox.clock)
    this.mostMessages = inbox.limits.pendingMessages ?? defaultMessages
    this.mostBytes = inbox.limits.pendingBytes ?? defaultBytes
  }

  abstract open(): Promise<void>
  abstract claim(id: string): Promise<Claim | undefined>
  abstract refusing(): 'inbox_unavailable' | undefined
  /** Starts nothing new, waits for what is in hand, and writes down what is settled. */
  protected abstract settleDown(withinMs: number): Promise<void>
  /** No other process can have it, and nothing keeps it from starting. */
  protected abstract mayStart(found: Found): boolean
  /** What becomes of a message that is here. See `Inbox.settle`. */
  protected abstract end(found: Found, outcome: Outcome): Settled | Promise<Settled>
  /** Called once, when nothing is handed out any more. */
  protected abstract leave(): Promise<void>
  protected abstract failed(what: string, error: unknown): void

  /** What has to happen before a message is handed out. Resolves to whether that is possible now. */
  protected begins(_found: Found): boolean | Promise<boolean> {
    return true
  }

  settle(id: string, outcome: Outcome = done): Settled | Promise<Settled> {
    const found = this.byId.get(id)
    return found && this.end(found, outcome)
  }

  async isStillHeld(id: string): Promise<boolean> {
    return (await this.handOut(id)) !== undefined
  }

  usage(): { readonly messages: number; readonly bytes: number } {
    return { messages: this.byId.size, bytes: this.bytes }
  }

  /** The age of the oldest message that is read and not settled, in milliseconds. */
  oldestMs(): number | undefined {
    let oldest: number | undefined
    for (const { unsettled } of this.parts.values())
      for (const { message, replayed } of unsettled.values()) {
        if (replayed) continue
        oldest = Math.min(oldest ?? Infinity, message.receivedAt)
        break
      }
    return oldest === undefined ? undefined : Math.max(0, this.clock.now() - oldest)
  }

  /** Running handlers finish first. Then others learn at once that this process leaves, so that another one can take over. */
  async finish(withinMs: number, breakOff: () => Promise<void>): Promise<void> {
    this.isFinishing = true
    await this.settleDown(withinMs)
    const brokenOff = breakOff()
    // Not before: from now on, a message that is not handed out counts as left.
    this.#stop()
    await brokenOff
    await this.close()
  }

  async close(): Promise<void> {
    if (this.isClosed) return
    this.#closing.abort()
    this.#stop()
    await this.leave()
    this.say.stop()
  }

  #stop(): void {
    this.isStopped = true
    this.change()
  }

  protected get isClosed(): boolean {
    return this.#closing.signal.aborted
  }

  /** Whether no more messages may be read. */
  protected get isFull(): boolean {
    return this.byId.size >= this.mostMessages || this.bytes >= this.mostBytes
  }

  /** Resolves when a message may start. `undefined`: its partition has left this process, or it is settled. */
  protected async handOut(id: string): Promise<Found | undefined> {
    const found = this.byId.get(id)
    while (found !== undefined && this.isHere(found)) {
      if (!this.mayStart(found)) {
        await this.nextChange()
        continue
      }
      found.part.hand.add(found)
      if (await this.begins(found)) return this.isHere(found) ? found : undefined
      this.takeBack(found)
      await pause(this.clock, againMs)
    }
    return undefined
  }

  protected isHere(found: Found): boolean {
    return this.byId.get(found.message.id) === found && !this.isStopped
  }

  protected add(found: Found): void {
    const { id, bytes } = found.message
    found.part.unsettled.set(id, found)
    this.byId.set(id, found)
    this.bytes += bytes
  }

  /** Its vehicle was erased. */
  letGoOf(vin: string): void {
    for (const found of this.byId.values())
      if (isAbout({ lane: found.message.lane, text: this.textHereOf(found) }, vin)) this.forget(found)
    this.change()
  }

  /** The text of a message, as far as it is in memory. */
  protected abstract textHereOf(found: Found): string

  protected forget(found: Found): void {
    const { id, bytes } = found.message
    this.byId.delete(id)
    found.part.unsettled.delete(id)
    this.bytes -= bytes
    this.takeBack(found)
  }

  /** The attempt at a message that was handed out has ended. */
  protected takeBack(found: Found): void {
    if (found.part.hand.delete(found) && this.#quieting > 0) this.change()
  }

  /** Other processes handle what this one has not settled of these partitions. Returns the ids of those messages. */
  protected drop(partitions: Iterable<number>): readonly string[] {
    const gone: string[] = []
    for (const partition of partitions) {
      const part = this.parts.get(partition)
      this.parts.delete(partition)
      for (const found of part?.unsettled.values() ?? []) {
        gone.push(found.message.id)
        this.forget(found)
      }
    }
    return gone
  }

  /** Who waits for something looks again. */
  protected change(): void {
    for (const go of this.#changed) go()
  }

  /** Resolves at the next change, or after a moment: no event reports the end of a lease. */
  protected async nextChange(ms: number = changeMs): Promise<void> {
    await new Promise<void>((resolve) => {
      const go = (): void => {
        timer.cancel()
        this.#changed.delete(go)
        resolve()
      }
      const timer = this.clock.after(ms, go)
      this.#changed.add(go)
    })
  }

  /** Resolves when nothing of these partitions is in hand, or when the time is over. */
  protected async quiet(parts: Iterable<PartitionOf<Found>>, withinMs: number): Promise<void> {
    const waited = [...parts]
    const untilMs = elapsedMs(this.clock) + withinMs
    this.#quieting += 1
    while (waited.some(({ hand }) => hand.size > 0) && elapsedMs(this.clock) < untilMs) await this.nextChange()
    this.#quieting -= 1
  }

  /** Runs it again after as long as it says, until the inbox is closed. */
  protected async repeat(what: string, run: () => Promise<number>): Promise<void> {
    while (!this.isClosed) {
      let ms = againMs
      try {
        ms = await run()
      } catch (error) {
        if (!this.isClosed) this.failed(what, error)
      }
      await pause(this.clock, ms, this.#closing.signal).catch(() => {})
    }
  }
}
