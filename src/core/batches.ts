import type { Timer } from '../base/clock.ts'
import type { ObservedRun, SettledMessage } from '../inbox/observer.ts'
import { type Entry, contextHop, noRequest, type RequestWork, type Step } from './entry.ts'
import { type After, type CoreCounts, type CoreOptions, inboxRestMs, type Turn } from './events.ts'
import type { Lanes } from './lanes.ts'
import type { Lifecycle } from './lifecycle.ts'
import type { Gate, Hooks } from './part.ts'
import { errorText, requestOf } from './retry.ts'
import type { Failure, Runner } from './runner.ts'

/** Messages that are gathered for a handler. It holds its entries, and takes a turn of its own. */
class Batch implements Turn {
  entries: Entry[] = []
  readonly owner: RequestWork | undefined
  readonly hop: (() => void) | undefined
  readonly run: () => Promise<void>
  timer: Timer | undefined
  /** Its handler runs, so its messages have an attempt that a drain takes back. */
  isRunning = false

  constructor(owner: RequestWork | undefined, run: (batch: Batch) => Promise<void>, take: (turn: Turn) => void) {
    this.owner = owner
    this.run = () => run(this)
    this.hop = owner && contextHop(() => take(this))
  }
}

/** What batches and the drain may ask of the core. */
export interface RunningCore {
  readonly options: CoreOptions
  readonly lanes: Lanes
  readonly counts: CoreCounts
  readonly lifecycle: Lifecycle
  readonly hooks: Hooks
  readonly runner: Runner
  readonly pump: () => void
  last(): Promise<boolean>
  stopTimers(): void
  enqueue(turn: Turn): void
  takeTurn(turn: Turn): void
  release(entry: Entry, after: After): void
  later(entry: Entry, attempts: number, restMs: number): Promise<void>
  failed(entry: Entry, step: Step, error: unknown, messages?: number): { gate: Gate } | { restMs: number }
  isLast(entry: Entry): boolean
  conclude(entry: Entry): 'over' | Promise<'over'>
  reportSettled(entry: Entry, outcome: SettledMessage['outcome']): void
}

/** Gathers messages for the handler of one batch step, and runs it. A batch that fails is tried message by message. */
export class Gathering {
  readonly #step: Step
  readonly #core: RunningCore
  /** Batches that take more messages: one, or one for each request where a runtime binds work to requests. */
  readonly #open = new Set<Batch>()

  constructor(step: Step, core: RunningCore) {
    this.#step = step
    this.#core = core
  }

  /** Whether an entry is in an open batch that a message of this request may join. */
  holds({ heldBy }: Entry, request: RequestWork): boolean {
    return heldBy instanceof Batch && this.#open.has(heldBy) && heldBy.owner === ownerOf(request)
  }

  /** Adds an entry to the open batch, and returns the batch. */
  take(entry: Entry): object {
    const { size = 1, withinMs = 0 } = this.#step.gather ?? {}
    const batch = this.#openFor(ownerOf(entry.request), withinMs)
    batch.entries.push(entry)
    if (batch.entries.length >= size) this.#close(batch)
    return batch
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
    const batch = new Batch(owner, this.#run, (turn) => this.#core.takeTurn(turn))
    batch.timer = this.#core.options.clock.after(withinMs, () => {
      this.#close(batch)
      this.#core.pump()
    })
    this.#open.add(batch)
    return batch
  }

  #close(batch: Batch): void {
    if (!this.#open.delete(batch)) return
    batch.timer?.cancel()
    this.#core.enqueue(batch)
  }

  /** Never rejects. */
  readonly #run = async (batch: Batch): Promise<void> => {
    const kept = new Map<Entry, Gate>()
    // Other processes can take messages over until the handler runs.
    for (const entry of await this.#stillHeld(batch)) {
      if (entry.heldBy !== batch) continue
      // Asked for each: a handler that rests is tried with one message, and the others wait.
      const gate = this.#core.hooks.gate?.(entry, this.#step)
      if (gate === undefined) continue
      entry.hold(gate)
      kept.set(entry, gate)
    }
    await Promise.all([this.#try(batch), this.#waitAt(kept)])
  }

  async #try(batch: Batch): Promise<void> {
    const core = this.#core
    const { events } = core.options
    const entries = batch.entries.filter(({ heldBy }) => heldBy === batch)
    const [first] = entries
    if (first === undefined) return
    for (const entry of entries) entry.countAttempt(core.counts)
    batch.isRunning = true
    const failure = await this.#call(batch, entries)
    batch.isRunning = false
    // Messages that were ended meanwhile are accounted for. At the end of a drain, all of them are.
    const left = entries.filter(({ heldBy }) => heldBy === batch)
    const request = failure && requestOf(failure.error)
    if (failure === undefined || request?.kind === 'discard') {
      core.hooks.succeeded?.(this.#step)
      if (request?.kind === 'discard') events.discarded(request.reason, first.event?.topic ?? '', left.length)
      await this.#finishAll(left)
    } else if (core.lifecycle.startsNoMore) {
      for (const entry of left) entry.uncountAttempt()
    } else await this.#afterFailedBatch(left, failure.error, entries.length)
  }

  /** Only the first message of a lane waits at its gate: one behind it would be let through in vain. */
  async #waitAt(kept: ReadonlyMap<Entry, Gate>): Promise<void> {
    await this.#laterAll([...kept.keys()], 0)
    for (const [entry, gate] of kept) {
      if (entry.previous === undefined) this.#core.release(entry, gate)
      else {
        entry.letGo()
        this.#core.release(entry, 'wait')
      }
    }
  }

  async #stillHeld(batch: Batch): Promise<readonly Entry[]> {
    const { inbox } = this.#core.options
    const gathered = batch.entries.filter(({ heldBy }) => heldBy === batch)
    if (inbox.isStillHeld === undefined) return gathered
    const held = await Promise.all(gathered.map(async ({ id }) => (await inbox.isStillHeld?.(id)) !== false))
    for (const [at, entry] of gathered.entries()) if (held[at] === false) this.#core.release(entry, 'over')
    return gathered.filter((_, at) => held[at])
  }

  #call({ owner }: Batch, entries: readonly Entry[]): Failure | undefined | Promise<Failure | undefined> {
    const call = (): Failure | undefined | Promise<Failure | undefined> =>
      this.#core.runner.runBatch(this.#step, entries, owner ?? entries[0]?.request ?? noRequest)
    const { around } = this.#core.options.events.observers
    if (around === undefined) return call()
    const messages = entries.flatMap((entry) =>
      entry.event === undefined ? [] : [{ event: entry.event, delivery: entry.delivery() }],
    )
    const what: ObservedRun = { messages, isBatch: true }
    return around(async () => ({ failure: await call() }), what).then(({ failure }) => failure)
  }

  /** The handler is done with it. It goes into its next batch in its own turn. */
  #finish(entry: Entry): void | Promise<void> {
    const core = this.#core
    entry.leave((entry.steps ?? []).slice(1))
    if (entry.steps?.length !== 0) {
      core.release(entry, 'wait')
      return undefined
    }
    const failed = (error: unknown): void => {
      this.#core.options.events.inboxFailed(error)
      core.release(entry, inboxRestMs)
    }
    try {
      const concluded = core.conclude(entry)
      if (concluded instanceof Promise) return concluded.then(() => core.release(entry, 'over'), failed)
      core.release(entry, 'over')
    } catch (error) {
      failed(error)
    }
    return undefined
  }

  async #finishAll(entries: readonly Entry[]): Promise<void> {
    const finishing: Promise<void>[] = []
    for (const entry of entries) {
      const finished = this.#finish(entry)
      if (finished instanceof Promise) finishing.push(finished)
    }
    if (finishing.length > 0) await Promise.all(finishing)
  }

  /**
   * What follows when the handler failed for a batch of `size`, some of which other processes may have taken over:
   *
   * | case                         | the attempt counts | it is written   | the next run                  |
   * | ---------------------------- | ------------------ | --------------- | ----------------------------- |
   * | its breaker is open          | no                 | as none         | gathered, when the gate opens |
   * | one message, or `Retry`      | yes                | with its rest   | gathered, after its rest      |
   * | several messages             | no                 | no              | each alone, at once           |
   */
  async #afterFailedBatch(entries: readonly Entry[], error: unknown, size: number): Promise<void> {
    const [first] = entries
    if (first === undefined) return
    const core = this.#core
    const next = core.failed(first, this.#step, error, size)
    if ('gate' in next) {
      for (const entry of entries) entry.exemptAttempt()
      await this.#waitAt(new Map(entries.map((entry) => [entry, next.gate])))
    } else if (size === 1 || requestOf(error) !== undefined) {
      const last = new Set(entries.filter((entry) => core.isLast(entry)))
      const again = entries.filter((entry) => !last.has(entry))
      for (const entry of last) entry.failForGood(errorText(error), [this.#step])
      await Promise.all([this.#finishAll([...last]), this.#laterAll(again, next.restMs)])
      for (const entry of again) core.release(entry, next.restMs)
    } else {
      for (const entry of entries) entry.goAlone()
      for (const entry of entries) core.release(entry, 'wait')
    }
  }

  async #laterAll(entries: readonly Entry[], restMs: number): Promise<void> {
    const { events } = this.#core.options
    await Promise.all(
      entries.map((entry) =>
        this.#core.later(entry, entry.attempt, restMs).catch((error: unknown) => events.inboxFailed(error)),
      ),
    )
  }
}

/** The attempts of an entry whose turn does not end. */
export const endedAttempts = ({ attempt, heldBy }: Entry): number =>
  heldBy instanceof Batch && heldBy.isRunning ? attempt - 1 : attempt

const ownerOf = (request: RequestWork): RequestWork | undefined => (request.isBound ? request : undefined)
