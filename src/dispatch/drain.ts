import type { Clock } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import type { DrainResult } from '../hosting/drainable.ts'
import type { Inbox } from '../inbox/inbox.ts'
import type { DispatchCounts } from './dispatcher.ts'
import type { Backlog } from './backlog.ts'
import type { GiveUp } from './give-up.ts'
import type { Lanes } from './lanes.ts'
import type { Outcome } from './outcome.ts'
import type { Runner } from './run.ts'
import type { Work } from './work.ts'

export interface DrainOptions {
  readonly clock: Clock
  readonly inbox: Inbox
  readonly lanes: Lanes<Work>
  readonly runner: Runner
  readonly counts: Readonly<DispatchCounts>
  /** Whether nothing is left to do, and nothing more can come. */
  readonly isIdle: () => boolean
  /** Whether nothing is under way. */
  readonly isQuiet: () => boolean
  readonly giveUp: GiveUp
  readonly backlog: Backlog
  readonly outcome: Outcome
  readonly events: { inboxFailed(error: unknown): void }
  /** Called when nothing more is to come. */
  readonly begun: () => void
  /** Called when no handler may be started any more. */
  readonly stop: () => void
}

/** The end of a dispatcher. */
export interface Drain {
  begin(deadlineMs: number): Promise<DrainResult>
  /** To be called whenever something has ended. */
  check(): void
  readonly isBegun: boolean
  /** No handler may be started any more. */
  readonly stopped: boolean
}

/** How long after the deadline an inbox may take to note what was aborted. */
const inboxGraceMs = 1_000

export function createDrain(options: DrainOptions): Drain {
  const { clock, inbox, lanes, backlog, runner, counts, isIdle, isQuiet, giveUp, outcome } = options
  let isBegun = false
  let stopped = false
  let waiting: (() => void) | undefined

  /** Resolves when `over` holds, which is looked at on every `check`, or when the time has passed. */
  function until(over: () => boolean, atMostMs: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = clock.after(atMostMs, resolve)
      waiting = () => {
        if (!over()) return
        waiting = undefined
        timer.cancel()
        resolve()
      }
      waiting()
    })
  }

  /** What was handed out, and had no turn to its end, was not tried. */
  async function noteBrokenOff(): Promise<void> {
    const noting: Promise<void>[] = []
    for (const work of lanes.all()) {
      const { opened, state, attempt, batch } = work
      if (opened === undefined || batch?.rests === true || (state !== 'gathered' && state !== 'parked')) continue
      const attempts = state === 'gathered' ? attempt - 1 : attempt
      noting.push(outcome.breakOff(work, attempts).catch(options.events.inboxFailed))
    }
    await Promise.all(noting)
  }

  return {
    async begin(deadlineMs) {
      const handledBefore = counts.handled + counts.deadLettered
      const lostBefore = counts.lost
      isBegun = true
      options.begun()
      await until(isIdle, deadlineMs)
      stopped = true
      options.stop()
      runner.abort(new FleethookError('drain_deadline', `The drain reached its deadline of ${deadlineMs} ms.`))
      for (const work of lanes.all()) work.rest?.cancel()
      // Aborted runs end at once; what is waited for here is the inbox taking note of them.
      let noted = false
      void noteBrokenOff().then(() => {
        noted = true
        waiting?.()
      })
      await until(() => noted && isQuiet(), inboxGraceMs)
      const unfinished = [...lanes.all()]
      const shelved = lanes.folded + backlog.size
      for (const work of unfinished) work.state = 'over'
      lanes.clear()
      backlog.clear()
      await giveUp(unfinished)
      const handled = counts.handled + counts.deadLettered - handledBefore
      const lost = counts.lost - lostBefore
      const left = inbox.durability === 'memory' ? 0 : unfinished.filter((work) => work.counts).length + shelved
      return { handled, left, lost }
    },

    check: () => waiting?.(),

    get isBegun() {
      return isBegun
    },

    get stopped() {
      return stopped
    },
  }
}
