import { checkOptions, isObject, required } from '../base/options.ts'
import {
  type Edge,
  type EdgeMemory,
  type EdgeRecord,
  type EdgeResult,
  type EdgeStep,
  type EdgeTimer,
  isEdge,
  isWaiting,
  type Occurrence,
} from '../vehicles/edge.ts'
import { createClockwork } from './clockwork.ts'
import { type Duration, invalid, readDuration } from './duration.ts'

/** Options of `followedBy` and `unless`. */
export interface WithinOption {
  /** The longest time from the first to the second, by the vehicle's clock. From a second to a year. */
  readonly within: Duration
}

/** One thing happened after another: the occurrence of `followedBy`. */
export interface Followed<Second extends Occurrence = Occurrence> extends Occurrence {
  /** When the first one happened. */
  readonly since: Date
  /** What happened then. */
  readonly second: Second
}

/** One thing happened, and another one did not: the occurrence of `unless`. `at` is when the time was up. */
export interface Missed extends Occurrence {
  /** When the first one happened. */
  readonly since: Date
  readonly dueAt: Date
  /** The receiver noticed it more than a second after it was due. */
  readonly late: boolean
}

/** What both remember. */
interface Kept extends EdgeRecord {
  /** What the first edge remembers and waits for. */
  readonly inner?: EdgeMemory | undefined
  readonly innerTimer?: EdgeTimer | undefined
  /** What the second one does. */
  readonly other?: EdgeMemory | undefined
  readonly otherTimer?: EdgeTimer | undefined
  /** When the first one happened. */
  readonly sinceMs?: number | undefined
  /** Messages may be missing since before that. */
  readonly acrossGap?: boolean | undefined
}

/** What an edge found, and what it remembers and waits for now. */
interface Asked {
  readonly all: readonly Occurrence[]
  readonly memory: EdgeMemory | undefined
  readonly timer: EdgeTimer | undefined
}

type Both<Happened extends Occurrence> = Pick<
  Edge<Happened>,
  'name' | 'fields' | 'reads' | 'topics' | 'facts' | 'readsFacts' | 'traces' | 'daily' | 'timing' | 'detect'
>

/** The second one happens in time after the first one. */
export function followed<Second extends Occurrence>(
  first: Edge,
  second: Edge<Second>,
  options: WithinOption,
): Both<Followed<Second>> {
  const { ms, name } = checked('followedBy', second, options)
  return {
    ...both(`${first.name}.followedBy(${second.name},${name})`, first, second),
    detect(step) {
      const { kept, inner, other } = askedBoth(first, second, step)
      let { sinceMs, acrossGap } = kept
      for (const { at, acrossGap: across } of inner.all) [sinceMs, acrossGap] = [at.getTime(), across]
      const happened: Followed<Second>[] = []
      for (const each of other.all) {
        if (sinceMs === undefined || each.at.getTime() < sinceMs) continue
        if (each.at.getTime() <= sinceMs + ms)
          happened.push({
            at: each.at,
            acrossGap: each.acrossGap || acrossGap === true,
            since: new Date(sinceMs),
            // Only the second edge finds these.
            second: each as Second, // oxlint-disable-line no-unsafe-type-assertion
          })
        sinceMs = undefined
      }
      return resultOf({ inner, other, sinceMs, acrossGap }, happened, undefined)
    },
  }
}

/** The first one happens, and the second one does not, in time. */
export function missed(first: Edge, second: Edge, options: WithinOption): Both<Missed> {
  const { ms, name } = checked('unless', second, options)
  return {
    ...both(`${first.name}.unless(${second.name},${name})`, first, second),
    detect(step) {
      const { kept, inner, other } = askedBoth(first, second, step)
      let { sinceMs, acrossGap } = kept
      const happened: Missed[] = []
      const firedMs = step.event.topic === 'timer' ? (step.timer?.due ?? -Infinity) : -Infinity
      if (sinceMs !== undefined && sinceMs + ms <= firedMs) {
        const dueAt = new Date(sinceMs + ms)
        const late = step.arrivedMs - dueAt.getTime() > 1_000
        happened.push({ at: dueAt, dueAt, since: new Date(sinceMs), late, acrossGap: acrossGap === true })
        sinceMs = undefined
      }
      for (const { at, acrossGap: across } of inner.all)
        if (sinceMs === undefined) [sinceMs, acrossGap] = [at.getTime(), across]
      for (const { at } of other.all)
        if (sinceMs !== undefined && at.getTime() >= sinceMs && at.getTime() <= sinceMs + ms) sinceMs = undefined
      return resultOf({ inner, other, sinceMs, acrossGap }, happened, ms)
    },
  }
}

function checked(what: string, second: unknown, options: WithinOption): { readonly ms: number; readonly name: string } {
  if (!isEdge(second))
    throw invalid(
      `\`${what}\` needs an edge`,
      "For instance becomes('Gear', 'P'). A condition becomes one with starts(…).",
    )
  checkOptions<WithinOption>(what, options, {
    within: required({ must: 'must be a time', accepts: isObject }, 'For instance { minutes: 5 }.'),
  })
  return readDuration('within', options.within)
}

function both(name: string, first: Edge, second: Edge): Omit<Both<Occurrence>, 'detect'> {
  const all = <Item>(of: (edge: Edge) => readonly Item[] | undefined): readonly Item[] => [
    ...new Set([...(of(first) ?? []), ...(of(second) ?? [])]),
  ]
  return {
    name,
    fields: all(({ fields }) => fields),
    reads: all(({ reads }) => reads),
    topics: all(({ topics }) => topics),
    facts: all(({ facts }) => facts),
    readsFacts: all(({ facts, readsFacts = facts }) => readsFacts),
    traces: all(({ traces }) => traces),
    daily: first.daily === true || second.daily === true,
    timing: createClockwork,
  }
}

/** What both edges find in a step. */
function askedBoth(
  first: Edge,
  second: Edge,
  step: EdgeStep,
): { readonly kept: Kept; readonly inner: Asked; readonly other: Asked } {
  const { memory, timer } = step
  const found: Kept = typeof memory === 'object' && memory !== null ? memory : {}
  const isAcross = timer?.acrossGap === true
  const kept = isAcross ? { ...found, acrossGap: true } : found
  const across = (own: EdgeTimer | undefined): EdgeTimer | undefined =>
    own && isAcross ? { ...own, acrossGap: true } : own
  return {
    kept,
    inner: asked(first, step, kept.inner, across(kept.innerTimer)),
    other: asked(second, step, kept.other, across(kept.otherTimer)),
  }
}

/** What one of them finds, if the step is for it. */
function asked(edge: Edge, step: EdgeStep, memory: EdgeMemory | undefined, timer: EdgeTimer | undefined): Asked {
  const isTimer = step.event.topic === 'timer'
  const isUp = timer !== undefined && timer.due !== null && timer.due <= (step.timer?.due ?? -Infinity)
  // An edge that a time of the day decides may have no timer yet.
  const isNew = edge.daily === true && timer === undefined
  if (isTimer ? !isUp : !touches(edge, step) && !isWaiting(memory) && !isNew) return { all: [], memory, timer }
  const { happened, earlier = [], memory: next, timer: waits } = edge.detect({ ...step, memory, timer }) ?? {}
  return {
    all: happened === undefined ? earlier : [...earlier, happened],
    memory: next === undefined ? memory : (next ?? undefined),
    timer: waits === undefined ? (isTimer ? undefined : timer) : (waits ?? undefined),
  }
}

/** Whether a step can make an edge happen. */
function touches({ fields, topics, facts = [] }: Edge, { event, changes, before, after }: EdgeStep): boolean {
  if (event.topic === 'facts') return facts.some(({ name }) => Object.hasOwn(event.facts, name))
  return (
    topics.some((topic) => topic === event.topic) ||
    fields.some(
      (field) =>
        changes.some((change) => change.field === field) || (!before.isCertain(field) && after.isCertain(field)),
    )
  )
}

/** What both remember, and the first time at which one of them is due. `ms`: how long the second one is waited for. */
function resultOf<Happened extends Occurrence>(
  {
    inner,
    other,
    sinceMs,
    acrossGap,
  }: { readonly inner: Asked; readonly other: Asked } & Pick<Kept, 'sinceMs' | 'acrossGap'>,
  happened: readonly Happened[],
  ms: number | undefined,
): EdgeResult<Happened> {
  const own: EdgeTimer | undefined =
    sinceMs === undefined || ms === undefined
      ? undefined
      : { due: sinceMs + ms, since: sinceMs, acrossGap: acrossGap === true }
  const timers = [own, inner.timer, other.timer].filter((timer) => timer !== undefined && timer.due !== null)
  const [next] = timers.toSorted((one, two) => Number(one?.due) - Number(two?.due))
  const memory: Kept = {
    inner: inner.memory,
    innerTimer: inner.timer,
    other: other.memory,
    otherTimer: other.timer,
    sinceMs,
    acrossGap: sinceMs !== undefined && acrossGap === true ? true : undefined,
  }
  const isEmpty = Object.values(memory).every((value) => value === undefined)
  const last = happened.at(-1)
  const waits = next && {
    due: next.due,
    since: next.since,
    byArrival: next.byArrival === true,
    acrossGap: next.acrossGap === true,
  }
  const others = { memory: isEmpty ? null : memory, timer: waits ?? null }
  return last === undefined ? others : { ...others, happened: last, earlier: happened.slice(0, -1) }
}
