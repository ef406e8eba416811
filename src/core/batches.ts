import type { Timer } from '../base/clock.ts'
import type { ObservedRun, SettledMessage } from '../inbox/observer.ts'
import { type Entry, gateInto, noRequest, type RequestWork, type Step } from './entry.ts'
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
  readonly gate: (() => void) | undefined
  readonly run: () => Promise<void>
  timer: Timer | undefined

  constructor(owner: RequestWork | undefined, run: (batch: Batch) => Promise<void>, take: (turn: Turn) => void) {
    this.owner = owner
    this.run = () => run(this)
    this.gate = owner && gateInto(() => take(this))
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
  flush(): void
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
    const { events } = this.#core.options
    const core = this.#core
    // Other processes can take messages over until the handler runs.
    const entries = (await this.#stillHeld(batch)).filter(({ heldBy }) => heldBy === batch)
    const [first] = entries
    if (first === undefined) return
    const gate = core.hooks.gate?.(first, this.#step)
    if (gate !== undefined) {
      await this.#laterAll(entries, 0)
      for (const entry of entries) core.release(entry, gate)
      return
    }
    for (const entry of entries) entry.countAttempt(core.counts)
    const failure = await this.#call(batch, entries)
    // Messages that were ended meanwhile are accounted for. At the end of a drain, all of them are.
    const left = entries.filter(({ heldBy }) => heldBy === batch)
    if (failure !== undefined && core.lifecycle.isStopped) {
      for (const entry of left) entry.uncountAttempt()
      return
    }
    const request = failure && requestOf(failure.error)
    if (failure === undefined || request?.kind === 'discard') {
      core.hooks.succeeded?.(this.#step)
      if (request?.kind === 'discard') events.discarded(request.reason, first.event?.topic ?? '', left.length)
      await this.#finishAll(left)
    } else await this.#failed(left, failure.error)
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

  /** The handler failed: each message is tried alone, in its turn. All wait together at a gate, or when the handler threw `Retry`. */
  async #failed(entries: readonly Entry[], error: unknown): Promise<void> {
    const [first] = entries
    if (first === undefined) return
    const core = this.#core
    const next = core.failed(first, this.#step, error, entries.length)
    if ('gate' in next) {
      for (const entry of entries) entry.exemptAttempt()
      await this.#laterAll(entries, 0)
      for (const entry of entries) core.release(entry, next.gate)
    } else if (entries.length === 1 || requestOf(error) !== undefined) {
      const last = new Set(entries.filter((entry) => core.isLast(entry)))
      const again = entries.filter((entry) => !last.has(entry))
      for (const entry of last) entry.failForGood(errorText(error))
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

const ownerOf = (request: RequestWork): RequestWork | undefined => (request.isBound ? request : undefined)
