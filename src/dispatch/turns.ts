import { createAttempt } from './attempt.ts'
import type { Backlog } from './backlog.ts'
import type { DispatchCounts, DispatcherOptions } from './dispatcher.ts'
import type { Drain } from './drain.ts'
import { createDuplicates } from './duplicates.ts'
import { createGathering } from './gathering.ts'
import type { Lanes } from './lanes.ts'
import { createOutcome, type Outcome } from './outcome.ts'
import type { Runner } from './run.ts'
import { createTasks } from './tasks.ts'
import { gateInto, type Batch, type Work } from './work.ts'

/** Gives work its turns: so many at once, each lane in order, and again after a rest. */
export interface Turns {
  /** They are in their lanes and may be handled, in a task of their own. */
  arrive(works: readonly Work[], held: boolean): void
  /** It is bound to the surroundings in which this is called, if its request is held. */
  bind(work: Work): void
  /** They are over, whatever they were at. */
  end(works: readonly Work[]): void
  /** Starts what may start. */
  readonly pump: () => void
  /** No handler is started any more. */
  readonly stop: () => void
  readonly outcome: Outcome
  /** How many handlers run. */
  readonly running: number
}

export interface TurnsOptions extends DispatcherOptions {
  readonly counts: DispatchCounts
  readonly runner: Runner
  readonly lanes: Lanes<Work>
  readonly backlog: Backlog
  readonly drain: () => Drain
  /** It has left its lane. */
  readonly ended: (work: Work) => void
}

/** How long work rests when the inbox failed under it. */
const inboxRestMs = 5_000

export function createTurns(options: TurnsOptions): Turns {
  const { clock, concurrency, lanes, backlog, events, dedupe, drain } = options
  const duplicates = dedupe && createDuplicates(dedupe)
  const outcome = createOutcome({ ...options, duplicates })
  const stopped = (): boolean => drain().stopped
  const gathering = createGathering({ ...options, outcome, stopped, pump, step: stepBatch, over, back, inboxRestMs })
  const attempt = createAttempt({ ...options, outcome, gathering, duplicates, stopped })
  const tasks = createTasks(clock, turn)
  let arrivals: Work[] = []
  let running = 0

  function turn(): void {
    const arrived = arrivals
    arrivals = []
    const now = clock.now()
    for (const work of arrived) {
      if (work.notBefore > now) rest(work, work.notBefore - now)
      else lanes.ready(work)
    }
    pump()
  }

  function pump(): void {
    // The end of a drain is not put off until batches are full.
    if (drain().isBegun) gathering.flush()
    while ((gathering.waiting || lanes.waiting) && running < concurrency && !stopped() && tasks.goOn()) {
      const batch = gathering.take()
      if (batch === undefined) {
        const work = lanes.take()
        if (work === undefined) break
        running += 1
        work.state = 'running'
        if (work.gate === undefined) step(work)
        else work.gate()
      } else {
        running += 1
        if (batch.gate === undefined) stepBatch(batch)
        else batch.gate()
      }
    }
    drain().check()
  }

  function step(work: Work): void {
    if (work.state !== 'running') return
    attempt(work).then(
      (result) => leave(work, result),
      (error: unknown) => {
        events.inboxFailed(error)
        leave(work, inboxRestMs)
      },
    )
  }

  function stepBatch(batch: Batch): void {
    void gathering.run(batch).then(() => {
      running -= 1
      pump()
    })
  }

  /** Its turn has ended: for good, or with a rest in which it holds its lane but no place among the running. */
  function leave(work: Work, result: Awaited<ReturnType<typeof attempt>>): void {
    if (result === 'gathered') {
      running -= 1
      wake(work.lane?.turn)
    } else if (work.state === 'running') {
      running -= 1
      if (result === undefined) over(work)
      else if (result === 'parked') park(work)
      else {
        work.state = 'waiting'
        rest(work, result)
      }
    }
    pump()
  }

  function over(work: Work): void {
    if (work.state === 'over') return
    end(work)
    events.onCapacity(work.arrival)
    work.arrival.finish()
  }

  /** It waits until those before it in its lane are over, which they may be already. */
  function park(work: Work): void {
    work.state = 'parked'
    if (work.previous === undefined) wake(work)
  }

  function wake(work: Work | undefined): void {
    if (work?.state !== 'parked') return
    work.state = 'waiting'
    again(work)
  }

  /** It was gathered, and is not over. */
  function back(work: Work, restMs?: number): void {
    if (work.state !== 'gathered') return
    work.batch = undefined
    if (work.previous === undefined || work.previous.batch !== undefined) lanes.recall(work)
    if (restMs === undefined) {
      park(work)
      return
    }
    work.state = 'waiting'
    rest(work, restMs)
  }

  function rest(work: Work, restMs: number): void {
    if (stopped()) return
    work.rest = clock.after(restMs, () => {
      work.rest = undefined
      again(work)
      pump()
    })
  }

  function bind(work: Work): void {
    if (work.arrival.held) work.gate = gateInto(() => step(work))
  }

  function again(work: Work): void {
    bind(work)
    lanes.ready(work)
  }

  function end(work: Work): void {
    const { lane } = work
    work.state = 'over'
    work.batch = undefined
    work.rest?.cancel()
    lanes.remove(work)
    wake(lane?.head)
    options.ended(work)
  }

  return {
    arrive(works, isHeld) {
      for (const work of works) if (!backlog.shelve(work)) arrivals.push(work)
      tasks.later(isHeld)
    },

    bind,

    end(works) {
      for (const work of works) {
        if (work.state === 'running') running -= 1
        end(work)
      }
    },

    pump,
    stop: () => gathering.stop(),
    outcome,
    get running() {
      return running
    },
  }
}
