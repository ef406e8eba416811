import type { Clock, Timer } from '../base/clock.ts'
import { type Entry, contextHop, type RequestWork, type Slot, type Step } from './entry.ts'

/** What batches need of their core. */
interface BatchHost {
  readonly clock: Clock
  /** A batch is full, or has waited long enough: it runs as soon as there is a slot. */
  due(batch: Batch): void
  /** Starts what is due. */
  pump(): void
  /** Runs it, in the I/O context of its request. */
  run(batch: Batch): void
  /** None of its messages needs its slot any more. */
  free(): void
}

/** Messages for one run of a handler. It holds them until it runs, and then they share its slot. */
export class Batch implements Slot {
  readonly step: Step
  /** The request to which its work is bound. */
  readonly owner: RequestWork | undefined
  readonly hop: (() => void) | undefined
  entries: Entry[] = []
  timer: Timer | undefined
  readonly #host: BatchHost
  #inside = 0

  constructor(step: Step, owner: RequestWork | undefined, host: BatchHost) {
    this.step = step
    this.owner = owner
    this.#host = host
    this.hop = owner && contextHop(() => host.run(this))
  }

  /** Begins the turns of the messages that it still holds, and returns them. */
  begin(): readonly Entry[] {
    const entries = this.entries.filter(({ heldBy }) => heldBy === this)
    this.#inside = entries.length
    for (const entry of entries) entry.begin(this)
    if (entries.length === 0) this.#host.free()
    return entries
  }

  /** Whether a message has its turn in this batch. */
  has({ state, slot }: Entry): boolean {
    return state === 'running' && slot === this
  }

  leave(): void {
    this.#inside -= 1
    if (this.#inside === 0) this.#host.free()
  }
}

/** Gathers messages for the handler of one batch step. */
export class Gathering {
  readonly #step: Step
  readonly #host: BatchHost
  /** Batches that take more messages: one, or one for each request where a runtime binds work to requests. */
  readonly #open = new Set<Batch>()

  constructor(step: Step, host: BatchHost) {
    this.#step = step
    this.#host = host
  }

  /** Whether an entry is in an open batch that a message of this request may join. */
  holds({ heldBy }: Entry, request: RequestWork): boolean {
    return heldBy instanceof Batch && this.#open.has(heldBy) && heldBy.owner === ownerOf(request)
  }

  /** Adds an entry to the open batch, which holds it from now on. */
  take(entry: Entry): void {
    const { size = 1, withinMs = 0 } = this.#step.gather ?? {}
    const batch = this.#openFor(ownerOf(entry.request), withinMs)
    entry.hold(batch)
    batch.entries.push(entry)
    if (batch.entries.length >= size) this.#close(batch)
  }

  /** Entries in open batches are over. */
  dropOver(): void {
    for (const batch of this.#open) {
      batch.entries = batch.entries.filter(({ heldBy }) => heldBy === batch)
      if (batch.entries.length > 0) continue
      batch.timer?.cancel()
      this.#open.delete(batch)
    }
  }

  /** Lets no open batch wait any longer. */
  flush(): void {
    for (const batch of this.#open) this.#close(batch)
  }

  stop(): void {
    for (const { timer } of this.#open) timer?.cancel()
  }

  #openFor(owner: RequestWork | undefined, withinMs: number): Batch {
    for (const batch of this.#open) if (batch.owner === owner) return batch
    const batch = new Batch(this.#step, owner, this.#host)
    batch.timer = this.#host.clock.after(withinMs, () => {
      this.#close(batch)
      this.#host.pump()
    })
    this.#open.add(batch)
    return batch
  }

  #close(batch: Batch): void {
    if (!this.#open.delete(batch)) return
    batch.timer?.cancel()
    this.#host.due(batch)
  }
}

const ownerOf = (request: RequestWork): RequestWork | undefined => (request.isBound ? request : undefined)
