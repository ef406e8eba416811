import type { Timer } from '../base/clock.ts'
import { type AttemptsOptions, inboxRestMs } from './attempt.ts'
import type { Failure, RunContext } from './running.ts'
import { type Gatherer, happeningOf } from './registry.ts'
import { errorText, requestOf } from './retry.ts'
import {
  type Batch,
  changeBatch,
  countAttempt,
  deliveryOf,
  enterBatch,
  exemptAttempt,
  gateInto,
  keepOpened,
  leaveBatch,
  markRedelivered,
  none,
  type RequestWork,
  type Work,
} from './work.ts'

/**
 * What follows the run of a batch for one of its messages: it is `over`; it waits for its turn in its lane (`parked`); or it
 * rests for a number of milliseconds.
 */
interface BatchVerdict {
  readonly work: Work
  readonly verdict: 'over' | 'parked' | number
}

interface BatchesOptions extends Pick<
  AttemptsOptions,
  'inbox' | 'clock' | 'runner' | 'outcome' | 'counts' | 'breakers' | 'events' | 'lifecycle'
> {
  /** A batch is due, outside any run. */
  readonly onDue: () => void
  /** Runs a batch. Called in the I/O context that the batch is bound to. */
  readonly runBatch: (batch: GatheredBatch) => void
}

/** A batch of this module. */
export interface GatheredBatch extends Batch {
  works: Work[]
  isOpen: boolean
  isResting: boolean
  timer: Timer | undefined
  /** Continues in the I/O context of `owner`. */
  readonly gate: (() => void) | undefined
}

const nobody = { env: undefined }
/** Gathers messages for the handlers of batches, and runs these handlers. */
export class Batches {
  readonly #options: BatchesOptions
  readonly #open = new Set<GatheredBatch>()
  readonly #resting = new Set<GatheredBatch>()
  /** Batches to run now. */
  readonly due: GatheredBatch[] = []

  constructor(options: BatchesOptions) {
    this.#options = options
  }

  /**
   * The turn of a message has ended, and it goes into its next batch. It keeps its place in its lane until the batch is
   * settled.
   */
  gather(work: Work): void {
    const [gatherer] = work.gatherers
    if (gatherer === undefined) return
    countAttempt(work, this.#options.counts)
    const owner = work.request.isBound ? work.request : undefined
    // A message that failed before runs alone.
    const isAlone = work.attempt > 1
    const batch = isAlone ? this.#create(gatherer, [], [], owner) : this.#opened(gatherer, owner)
    batch.works.push(work)
    enterBatch(work, batch)
    if (isAlone) this.due.push(batch)
    else if (batch.works.length >= gatherer.size) this.#close(batch)
  }

  /** Runs the handler of a batch. Resolves to what follows for its messages. Never rejects. */
  async run(batch: GatheredBatch): Promise<readonly BatchVerdict[]> {
    const { inbox } = this.#options
    const gathered = batch.works.filter(isGathered)
    if (inbox.isStillHeld === undefined) return this.#run(batch, gathered)
    const held = await Promise.all(gathered.map(async (work) => (await inbox.isStillHeld?.(work.id)) !== false))
    const gone = gathered.filter((_, place) => held[place] === false)
    const left = gathered.filter((work, place) => held[place] === true && isGathered(work))
    return [...gone.map((work) => ({ work, verdict: 'over' }) as const), ...(await this.#run(batch, left))]
  }

  async #run(batch: GatheredBatch, works: Work[]): Promise<readonly BatchVerdict[]> {
    const { lifecycle, events, breakers } = this.#options
    if (works.length === 0) return parked(batch.later.flat())
    if (breakers.failing.size > 0 && breakers.isResting(batch.gatherer, works[0]?.laneKey ?? '')) {
      await this.#rest(batch, works, breakers.restMs(batch.gatherer))
      return none
    }
    const failure = await this.#call(batch, works)
    // Messages that were ended meanwhile are accounted for. At the end of a drain, all of them are.
    const left = works.filter(isGathered)
    if (left.length === 0 || (failure !== undefined && lifecycle.isStopped)) return none
    const request = failure && requestOf(failure.error)
    if (breakers.failing.size > 0 && (failure === undefined || request?.kind === 'discard'))
      breakers.succeeded(batch.gatherer)
    if (request?.kind === 'discard') events.discarded(request.reason, left[0]?.opened?.event.topic ?? '', left.length)
    return failure === undefined || request?.kind === 'discard'
      ? this.#finish(batch, left)
      : this.#failed(batch, left, failure.error)
  }

  /** Lets no open batch wait any longer. */
  flush(): void {
    for (const batch of this.#open) this.#close(batch)
  }

  /** No batch runs any more, and no timer fires. */
  stop(): void {
    for (const batch of [...this.#open, ...this.#resting]) batch.timer?.cancel()
    this.due.length = 0
  }

  #create(
    gatherer: Gatherer,
    works: Work[],
    later: Batch['later'],
    owner: RequestWork | undefined,
    isResting: boolean = false,
  ): GatheredBatch {
    const batch: GatheredBatch = {
      ...{ gatherer, owner, works, later, isOpen: false, isResting, timer: undefined },
      gate: owner && gateInto(() => this.#options.runBatch(batch)),
    }
    for (const work of works) changeBatch(work, batch)
    return batch
  }

  #opened(gatherer: Gatherer, owner: RequestWork | undefined): GatheredBatch {
    for (const batch of this.#open) if (batch.gatherer === gatherer && batch.owner === owner) return batch
    const batch = this.#create(gatherer, [], [], owner)
    this.#open.add(batch)
    batch.isOpen = true
    batch.timer = this.#options.clock.after(gatherer.withinMs, () => {
      this.#close(batch)
      this.#options.onDue()
    })
    return batch
  }

  #close(batch: GatheredBatch): void {
    if (!this.#open.delete(batch)) return
    batch.isOpen = false
    batch.timer?.cancel()
    this.due.push(batch)
  }

  #call({ gatherer, owner }: Batch, works: readonly Work[]): Failure | undefined | Promise<Failure | undefined> {
    const { wants, handler, edge } = gatherer
    const messages = works.flatMap((work) => {
      const { opened, step } = work
      return opened === undefined ? [] : [{ event: opened.event, delivery: deliveryOf(work, opened.claim), step }]
    })
    const run = (given: typeof messages, context: RunContext<undefined>): unknown => {
      const wanted = wants === undefined ? given : given.filter(({ event, step }) => wants(event, step))
      if (wanted.length === 0) return undefined
      return handler(
        wanted.map((message) => (edge === undefined ? message.event : happeningOf(edge, message))),
        {
          log: context.log,
          env: context.env,
          deliveries: wanted.map(({ delivery }) => delivery),
          vehicles: wanted.map(({ step }) => step?.view),
          changes: wanted.map(({ step }) => step?.changes ?? none),
          get signal() {
            return context.signal
          },
        },
      )
    }
    const { runner, events } = this.#options
    const call = (): Failure | undefined | Promise<Failure | undefined> =>
      runner.run(run, messages, owner ?? works[0]?.request ?? nobody, undefined, undefined, (lateMs) => {
        if (messages[0] === undefined) return
        const { event, delivery } = messages[0]
        events.endedLate(lateMs, event, delivery, { handler: gatherer, messages: messages.length })
      })
    const { around } = events.observers
    if (around === undefined) return call()
    return around(async () => ({ failure: await call() }), { messages, isBatch: true }).then(({ failure }) => failure)
  }

  /**
   * The handler is done with the messages, or failed with `error` for the last time. Each goes into its next batch in its own
   * turn.
   */
  async #finish(batch: Batch, works: readonly Work[], error?: string): Promise<readonly BatchVerdict[]> {
    const verdicts = await Promise.all(works.map((work) => this.#leave(work, error)))
    const [next, ...later] = batch.later
    if (next === undefined) return verdicts
    if (verdicts.every(({ verdict }) => verdict === 'over')) {
      this.due.push(this.#create(batch.gatherer, [...next], later, batch.owner))
      return verdicts
    }
    return [...verdicts, ...parked(batch.later.flat())]
  }

  async #leave(work: Work, error: string | undefined): Promise<BatchVerdict> {
    const { outcome, events } = this.#options
    const { opened } = work
    leaveBatch(work, error)
    if (opened === undefined || work.gatherers.length > 0) return { work, verdict: 'parked' }
    try {
      await outcome.conclude(work, opened.claim.message, opened)
      return { work, verdict: 'over' }
    } catch (failure) {
      events.inboxFailed(failure)
      return { work, verdict: inboxRestMs }
    }
  }

  async #failed(batch: Batch, works: Work[], error: unknown): Promise<readonly BatchVerdict[]> {
    const { outcome, breakers, events } = this.#options
    const [first] = works
    if (first?.opened === undefined) return none
    const { id, attempt } = first
    const isRequest = requestOf(error) !== undefined
    const failures = isRequest ? 0 : breakers.failed(batch.gatherer, first.laneKey)
    const rests = failures > 0
    const restMs = rests ? breakers.restMs(batch.gatherer) : outcome.restMs(first, error)
    if (isRequest) breakers.askedToWait(batch.gatherer)
    else {
      const isSplit = !rests && works.length > 1
      const next = outcome.nextRun(first, isSplit ? 0 : restMs, rests || isSplit)
      const run = { handler: batch.gatherer, messages: works.length, failures, ...next }
      events.failed(error, first.opened.event, { id, attempt }, run)
      if (rests) {
        for (const work of works) exemptAttempt(work)
        await this.#rest(batch, works, restMs)
        return none
      }
    }
    // A batch that is about to be split has not failed for good.
    const isLast = (isRequest || works.length === 1) && outcome.isLastFailure(first)
    if (!isRequest) {
      if (works.length > 1) {
        for (const work of works) markRedelivered(work)
        for (const { works: half, later } of halves(works))
          this.due.push(this.#create(batch.gatherer, half, [...later, ...batch.later], batch.owner))
        return none
      }
    } else if (works.length > 1 && !isLast) {
      await this.#rest(batch, works, restMs)
      return none
    }
    if (isLast) return this.#finish(batch, works, errorText(error))
    await this.#reschedule(works, restMs)
    // A single message holds its own lane until it is over, and no other.
    keepOpened(first, undefined)
    return [{ work: first, verdict: restMs }, ...parked(batch.later.flat())]
  }

  /** The messages rest, and run again together. */
  async #rest(batch: Batch, works: Work[], restMs: number): Promise<void> {
    const { clock, lifecycle, counts, onDue } = this.#options
    // Created before the inbox writes the new time, so that a drain that ends meanwhile does not write another one.
    const next = this.#create(batch.gatherer, works, batch.later, batch.owner, true)
    await this.#reschedule(works, restMs)
    if (lifecycle.isStopped) return
    this.#resting.add(next)
    next.timer = clock.after(restMs, () => {
      this.#resting.delete(next)
      next.isResting = false
      for (const work of works) countAttempt(work, counts)
      this.due.push(next)
      onDue()
    })
  }

  async #reschedule(works: readonly Work[], restMs: number): Promise<void> {
    const { outcome, events } = this.#options
    await Promise.all(works.map((work) => outcome.reschedule(work, restMs).catch(events.inboxFailed)))
  }
}

const isGathered = ({ state }: Work): boolean => state === 'gathered'

const parked = (works: readonly Work[]): readonly BatchVerdict[] =>
  works.map((work) => ({ work, verdict: 'parked' }) as const)

/**
 * Splits a batch that failed. Messages of one lane stay together, so that the halves need not wait for each other. When only
 * one lane is left, the second half waits for the first.
 */
function halves(works: readonly Work[]): readonly { readonly works: Work[]; readonly later: Batch['later'] }[] {
  const byLane = new Map<unknown, Work[]>()
  for (const work of works) {
    const mates = byLane.get(work.lane)
    if (mates === undefined) byLane.set(work.lane, [work])
    else mates.push(work)
  }
  const middle = Math.ceil(works.length / 2)
  if (byLane.size === 1) return [{ works: works.slice(0, middle), later: [works.slice(middle)] }]
  const first: Work[] = []
  const second: Work[] = []
  for (const mates of byLane.values())
    (first.length === 0 || first.length + mates.length <= middle ? first : second).push(...mates)
  return [first, second].map((half) => ({ works: half, later: [] }))
}
