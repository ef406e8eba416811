import type { Clock } from '../clock.ts'
import { halves } from './halves.ts'
import type { Lanes } from './lanes.ts'
import { type AttemptEvents, describe, type Outcome } from './outcome.ts'
import type { Gatherer } from './registry.ts'
import type { RetryOptions } from './retry.ts'
import type { Failure, RunContext, Runner } from './run.ts'
import { wishOf } from './thrown.ts'
import { type Batch, deliveryOf, gateInto, type Group, type Work } from './work.ts'

/** Gathers messages for the handlers of batches, and runs these. */
export interface Gathering {
  /** Whether a message may go on although those before it in its lane are not over: into the batch that they are in. */
  admits(work: Work): boolean
  /** Its turn has ended; it keeps its place in the lane until its batch is settled. */
  gather(work: Work, gatherer: Gatherer): void
  /** A batch that is to be run now. */
  take(): Group | undefined
  readonly waiting: boolean
  /** Runs the handler of a batch. Never rejects. */
  run(group: Group): Promise<void>
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
  readonly step: (group: Group) => void
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
  const open = new Set<Group>()
  const resting = new Set<Group>()
  let due: Group[] = []

  const ownerOf = ({ batch }: Work): Batch | undefined => (batch.held ? batch : undefined)

  function createGroup(gatherer: Gatherer, works: Work[], later: Group['later'], owner: Batch | undefined): Group {
    const group: Group = {
      ...{ gatherer, owner, works, later, open: false, timer: undefined },
      gate: owner && gateInto(() => options.step(group)),
    }
    for (const work of works) work.group = group
    return group
  }

  function close(group: Group): void {
    if (!open.delete(group)) return
    group.open = false
    group.timer?.cancel()
    due.push(group)
  }

  function opened(gatherer: Gatherer, owner: Batch | undefined): Group {
    for (const group of open) if (group.gatherer === gatherer && group.owner === owner) return group
    const group = createGroup(gatherer, [], [], owner)
    open.add(group)
    group.open = true
    group.timer = clock.after(gatherer.withinMs, () => {
      close(group)
      pump()
    })
    return group
  }

  /** The handler is done with them: what else they are for comes in their own turn. */
  async function finish(group: Group, works: readonly Work[]): Promise<void> {
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
    const [next, ...later] = group.later
    if (next !== undefined) due.push(createGroup(group.gatherer, [...next], later, group.owner))
  }

  /** They have failed for the last time. */
  function giveUp(group: Group, works: readonly Work[], error: unknown): Promise<void> {
    for (const work of works) work.fatal ??= describe(error)
    return finish(group, works)
  }

  async function putBack(works: readonly Work[], restMs: number): Promise<void> {
    await Promise.all(works.map((work) => outcome.putBack(work, restMs).catch(events.inboxFailed)))
  }

  /** All of them rest, and are run again together. */
  async function again(group: Group, works: Work[], restMs: number): Promise<void> {
    await putBack(works, restMs)
    if (stopped()) return
    const next = createGroup(group.gatherer, works, group.later, group.owner)
    resting.add(next)
    next.timer = clock.after(restMs, () => {
      resting.delete(next)
      for (const work of works) outcome.tried(work)
      due.push(next)
      pump()
    })
  }

  async function failed(group: Group, works: Work[], error: unknown): Promise<void> {
    const [first] = works
    if (first?.opened === undefined) return
    const wish = wishOf(error)
    const isLast = first.attempt >= retry.attempts
    if (wish === undefined) {
      const { id, attempt } = first
      events.failed(error, first.opened.event, { id, attempt }, works.length)
      if (works.length > 1) {
        for (const { works: half, later } of halves(works))
          due.push(createGroup(group.gatherer, half, [...later, ...group.later], group.owner))
        return
      }
    } else if (works.length > 1 && !isLast) return again(group, works, outcome.restMs(first, error))
    if (isLast) return giveUp(group, works, error)
    const restMs = outcome.restMs(first, error)
    await putBack(works, restMs)
    // It holds its lane until it is over, and nobody else's.
    first.opened = undefined
    back(first, restMs)
    for (const work of group.later.flat()) back(work)
  }

  function call(
    { gatherer, owner }: Group,
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
    return runner.run(run, messages, owner ?? works[0]?.batch ?? nobody, undefined)
  }

  return {
    admits(work) {
      const { previous, gatherers } = work
      if (previous === undefined) return true
      const { group } = previous
      // What was tried before is run alone.
      const isAlone = work.attempt > 0 && (work.pending?.length ?? 0) === 0
      return group?.open === true && !isAlone && group.gatherer === gatherers[0] && group.owner === ownerOf(work)
    },

    gather(work, gatherer) {
      outcome.tried(work)
      const isAlone = work.attempt > 1
      const owner = ownerOf(work)
      const group = isAlone ? createGroup(gatherer, [], [], owner) : opened(gatherer, owner)
      group.works.push(work)
      work.group = group
      work.state = 'gathered'
      if (isAlone) due.push(group)
      else if (group.works.length >= gatherer.size) close(group)
      lanes.pass(work)
    },

    take: () => due.shift(),
    get waiting() {
      return due.length > 0
    },

    async run(group) {
      const works = group.works.filter(({ state }) => state === 'gathered')
      if (works.length === 0) return
      const failure = await call(group, works)
      // Whoever ended one of them meanwhile accounts for it; and at the end of a drain all of them.
      const left = works.filter(({ state }) => state === 'gathered')
      if (left.length === 0 || (failure !== undefined && stopped())) return
      const wish = failure && wishOf(failure.error)
      if (wish?.kind === 'discard') events.discarded(wish.reason, left[0]?.opened?.event.topic ?? '', left.length)
      if (failure === undefined || wish?.kind === 'discard') await finish(group, left)
      else await failed(group, left, failure.error)
    },

    flush() {
      for (const group of open) close(group)
    },

    stop() {
      for (const group of [...open, ...resting]) group.timer?.cancel()
      due = []
    },
  }
}
