import type { Clock } from '../base/clock.ts'
import { halves } from './halves.ts'
import type { Lanes } from './lanes.ts'
import { type AttemptEvents, describe, type Outcome } from './outcome.ts'
import type { Gatherer } from './registry.ts'
import type { RetryOptions } from './retry.ts'
import type { Failure, RunContext, Runner } from './run.ts'
import { wishOf } from './thrown.ts'
import { type Arrival, deliveryOf, gateInto, type Batch, type Work } from './work.ts'

/** Gathers messages for the handlers of batches, and runs these. */
export interface Gathering {
  /** Whether a message may go on although those before it in its lane are not over: into the batch that they are in. */
  admits(work: Work): boolean
  /** Its turn has ended; it keeps its place in the lane until its batch is settled. */
  gather(work: Work, gatherer: Gatherer): void
  /** A batch that is to be run now. */
  take(): Batch | undefined
  readonly waiting: boolean
  /** Runs the handler of a batch. Never rejects. */
  run(batch: Batch): Promise<void>
  /** Lets no open batch wait any longer. */
  flush(): void
  /** Nothing is run any more: no time runs out either. */
  stop(): void
}

export interface GatheringOptions {
  readonly clock: Clock
  readonly runner: Runner
  readonly lanes: Lanes<Work>
  readonly outcome: Outcome
  readonly retry: RetryOptions
  readonly events: AttemptEvents & { inboxFailed(error: unknown): void }
  readonly stopped: () => boolean
  /** A batch waits to be run that nobody has asked for. */
  readonly pump: () => void
  /** Runs a batch; called in the surroundings that it is bound to. */
  readonly step: (batch: Batch) => void
  /** A message of a batch is over. */
  readonly over: (work: Work) => void
  /** It goes back to its lane, and may be tried again after so long: at once when its turn comes, without. */
  readonly back: (work: Work, restMs?: number) => void
  /** How long work rests when the inbox failed under it. */
  readonly inboxRestMs: number
}

const nobody = { env: undefined }

export function createGathering(options: GatheringOptions): Gathering {
  const { clock, runner, lanes, outcome, retry, events, stopped, pump, over, back, inboxRestMs } = options
  const open = new Set<Batch>()
  const resting = new Set<Batch>()
  let due: Batch[] = []

  const ownerOf = ({ arrival }: Work): Arrival | undefined => (arrival.held ? arrival : undefined)

  function createBatch(
    gatherer: Gatherer,
    works: Work[],
    later: Batch['later'],
    owner: Arrival | undefined,
    rests: boolean = false,
  ): Batch {
    const batch: Batch = {
      ...{ gatherer, owner, works, later, open: false, rests, timer: undefined },
      gate: owner && gateInto(() => options.step(batch)),
    }
    for (const work of works) work.batch = batch
    return batch
  }

  function close(batch: Batch): void {
    if (!open.delete(batch)) return
    batch.open = false
    batch.timer?.cancel()
    due.push(batch)
  }

  function opened(gatherer: Gatherer, owner: Arrival | undefined): Batch {
    for (const batch of open) if (batch.gatherer === gatherer && batch.owner === owner) return batch
    const batch = createBatch(gatherer, [], [], owner)
    open.add(batch)
    batch.open = true
    batch.timer = clock.after(gatherer.withinMs, () => {
      close(batch)
      pump()
    })
    return batch
  }

  /** The handler is done with them: what else they are for comes in their own turn. */
  async function finish(batch: Batch, works: readonly Work[]): Promise<void> {
    await Promise.all(
      works.map(async (work) => {
        const { opened: message } = work
        work.gatherers = work.gatherers.slice(1)
        work.attempt = 0
        if (message === undefined || work.gatherers.length > 0) {
          back(work)
          return
        }
        try {
          await outcome.conclude(work, message.claim.message, message)
        } catch (error) {
          events.inboxFailed(error)
          back(work, inboxRestMs)
          return
        }
        over(work)
      }),
    )
    const [next, ...later] = batch.later
    if (next === undefined) return
    if (works.every(({ state }) => state === 'over'))
      due.push(createBatch(batch.gatherer, [...next], later, batch.owner))
    else for (const work of batch.later.flat()) back(work)
  }

  /** They have failed for the last time. */
  function giveUp(batch: Batch, works: readonly Work[], error: unknown): Promise<void> {
    for (const work of works) work.fatal ??= describe(error)
    return finish(batch, works)
  }

  async function putBack(works: readonly Work[], restMs: number): Promise<void> {
    await Promise.all(works.map((work) => outcome.putBack(work, restMs).catch(events.inboxFailed)))
  }

  /** All of them rest, and are run again together. */
  async function again(batch: Batch, works: Work[], restMs: number): Promise<void> {
    // Before it is noted: a drain that ends meanwhile must not note something else.
    const next = createBatch(batch.gatherer, works, batch.later, batch.owner, true)
    await putBack(works, restMs)
    if (stopped()) return
    resting.add(next)
    next.timer = clock.after(restMs, () => {
      resting.delete(next)
      next.rests = false
      for (const work of works) outcome.tried(work)
      due.push(next)
      pump()
    })
  }

  async function failed(batch: Batch, works: Work[], error: unknown): Promise<void> {
    const [first] = works
    if (first?.opened === undefined) return
    const wish = wishOf(error)
    const isLast = first.attempt >= retry.attempts
    if (wish === undefined) {
      const { id, attempt } = first
      events.failed(error, first.opened.event, { id, attempt }, works.length)
      if (works.length > 1) {
        for (const work of works) work.redelivered = true
        for (const { works: half, later } of halves(works))
          due.push(createBatch(batch.gatherer, half, [...later, ...batch.later], batch.owner))
        return
      }
    } else if (works.length > 1 && !isLast) return again(batch, works, outcome.restMs(first, error))
    if (isLast) return giveUp(batch, works, error)
    const restMs = outcome.restMs(first, error)
    await putBack(works, restMs)
    // It holds its lane until it is over, and nobody else's.
    first.opened = undefined
    back(first, restMs)
    for (const work of batch.later.flat()) back(work)
  }

  function call(
    { gatherer, owner }: Batch,
    works: readonly Work[],
  ): Failure | undefined | Promise<Failure | undefined> {
    const { wants, handler } = gatherer
    const messages = works.flatMap((work) => {
      const { opened: message } = work
      return message === undefined ? [] : [{ event: message.event, delivery: deliveryOf(work, message.claim) }]
    })
    const run = (given: typeof messages, context: RunContext<undefined>): unknown => {
      const wanted = wants === undefined ? given : given.filter(({ event }) => wants(event))
      if (wanted.length === 0) return undefined
      return handler(
        wanted.map(({ event }) => event),
        {
          log: context.log,
          env: context.env,
          deliveries: wanted.map(({ delivery }) => delivery),
          get signal() {
            return context.signal
          },
        },
      )
    }
    return runner.run(run, messages, owner ?? works[0]?.arrival ?? nobody, undefined)
  }

  return {
    admits(work) {
      const { previous, gatherers } = work
      if (previous === undefined) return true
      const { batch } = previous
      // What was tried before is run alone.
      const isAlone = work.attempt > 0 && (work.pending?.length ?? 0) === 0
      return batch?.open === true && !isAlone && batch.gatherer === gatherers[0] && batch.owner === ownerOf(work)
    },

    gather(work, gatherer) {
      outcome.tried(work)
      const isAlone = work.attempt > 1
      const owner = ownerOf(work)
      const batch = isAlone ? createBatch(gatherer, [], [], owner) : opened(gatherer, owner)
      batch.works.push(work)
      work.batch = batch
      work.state = 'gathered'
      if (isAlone) due.push(batch)
      else if (batch.works.length >= gatherer.size) close(batch)
      lanes.pass(work)
    },

    take: () => due.shift(),
    get waiting() {
      return due.length > 0
    },

    async run(batch) {
      const works = batch.works.filter(({ state }) => state === 'gathered')
      if (works.length === 0) return
      const failure = await call(batch, works)
      // Whoever ended one of them meanwhile accounts for it; and at the end of a drain all of them.
      const left = works.filter(({ state }) => state === 'gathered')
      if (left.length === 0 || (failure !== undefined && stopped())) return
      const wish = failure && wishOf(failure.error)
      if (wish?.kind === 'discard') events.discarded(wish.reason, left[0]?.opened?.event.topic ?? '', left.length)
      if (failure === undefined || wish?.kind === 'discard') await finish(batch, left)
      else await failed(batch, left, failure.error)
    },

    flush() {
      for (const batch of open) close(batch)
    },

    stop() {
      for (const batch of [...open, ...resting]) batch.timer?.cancel()
      due = []
    },
  }
}
