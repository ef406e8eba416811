import { checkOptions, numberBetween, type Rule, trueOrFalse } from '../base/options.ts'
import type { FleetEvent } from '../events/event.ts'
import type { FieldValue } from '../events/values.ts'
import type { AnyVehicleView, Edge, EdgeResult, EdgeStep, EdgeTimer, EdgeTopic, Occurrence } from '../vehicles/edge.ts'
import { credibleMs } from '../vehicles/lag.ts'
import { Snapshot } from '../vehicles/state.ts'
import { wireTopics } from '../wire/envelope.ts'
import { createClockwork } from './clockwork.ts'
import { checkField, invalid } from './conditions.ts'

/** A length of time: the sum of these. From a second to a year. */
export interface Duration {
  readonly days?: number
  readonly hours?: number
  readonly minutes?: number
  readonly seconds?: number
}

/** Time was up: `at` is when it was due, and not when the receiver noticed. */
interface TimeUp extends Occurrence {
  readonly dueAt: Date
  /**
   * The receiver noticed it more than a second after it was due: nobody ran, or the messages that say so came late. Then `vehicle` may
   * show what came after it.
   */
  readonly late: boolean
}

/** Something has lasted: the occurrence of `starts(…).after(…)`. */
export interface Lasted extends TimeUp {
  /** When it began: the vehicle's clock, but never later than the receipt. */
  readonly since: Date
}

/** A vehicle has been silent: the occurrence of `silent`. */
export interface Silence extends TimeUp {
  /** When its last message was received, of those that count. */
  readonly lastAt: Date
}

/** A vehicle is heard again: the occurrence of `heardAgain`. */
export interface Heard extends Occurrence {
  /** When the message before the silence was received. */
  readonly lastAt: Date
  readonly silentMs: number
}

/** Options of `silent`. */
export interface SilentOptions {
  /** Only messages of these topics count. Default: all messages of the vehicle. */
  readonly topics?: readonly EdgeTopic[]
  /** Only `data` messages with one of these fields count. The part `vehicles` must keep them. Default: all. */
  readonly fields?: readonly string[]
  /**
   * Also counts while the vehicle is asleep or offline by its last `state` or `connectivity` message. Default `false`: such a vehicle is
   * silent on purpose.
   */
  readonly evenOffline?: boolean
}

const anAmount: Rule = numberBetween(0, 31_622_400)

/** A duration in milliseconds, and as it is in the names of edges. */
export function readDuration(what: string, duration: Duration): { readonly ms: number; readonly name: string } {
  const rules = { days: anAmount, hours: anAmount, minutes: anAmount, seconds: anAmount }
  checkOptions<Duration>(what, duration, rules)
  const { days = 0, hours = 0, minutes = 0, seconds = 0 } = duration
  const all = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
  if (all < 1 || all > 31_622_400)
    throw invalid(`\`${what}\` was given ${all} seconds`, 'Pass a time from a second to a year: { minutes: 30 }.')
  return { ms: Math.round(all * 1_000), name: `${all} s` }
}

/** A vehicle as if only some fields had values, each of them certain. */
export function knowing(vehicle: AnyVehicleView, isKnown: (field: string) => boolean = () => true): AnyVehicleView {
  if (vehicle instanceof Snapshot) return vehicle.knowing(isKnown)
  // A view of a test.
  const value = (field: string): FieldValue | undefined => (isKnown(field) ? vehicle.value(field) : undefined)
  return { ...vehicle, value, isCertain: (field) => value(field) !== undefined }
}

/** An edge after which something may last. */
interface Starting extends Pick<Edge, 'name' | 'fields' | 'detect'> {
  /** Whether it still lasts. */
  readonly holds?: (vehicle: AnyVehicleView) => boolean
  /** Whether it happens with the first value. Then it also counts for a state that was there before the edge. */
  readonly isFirst?: boolean
  /** Whether all conditions of `where` have been true since this time. */
  readonly mayBegin?: (vehicle: AnyVehicleView, sinceMs: number) => boolean
}

const isLate = (due: number, { arrivedMs }: EdgeStep): boolean => arrivedMs - due > 1_000

const noLonger = { timer: null } as const

/** It happens when something that an edge began has lasted for a time. */
export function lastedAfter(
  inner: Starting,
  duration: Duration,
): Pick<Edge<Lasted>, 'name' | 'timing' | 'detect'> & { readonly begins: NonNullable<Edge['begins']> | undefined } {
  const { ms, name } = readDuration('after', duration)
  const { fields, holds, isFirst = false, mayBegin = () => true } = inner
  if (holds === undefined)
    throw invalid(
      `\`${inner.name}\` is over at once, so it has no \`after\``,
      '`becomes`, `starts` and `ends` have one.',
    )

  /** A field may have got its value after the message that began it was sent. */
  const beginning = (after: AnyVehicleView, atMs: number): number => {
    let start = atMs
    for (const field of fields) {
      const sinceMs = after.since(field)?.getTime() ?? atMs
      if (sinceMs > start && !holds(knowing(after, (other) => other !== field))) start = sinceMs
    }
    return start
  }

  const isValid = (vehicle: AnyVehicleView): boolean =>
    holds(knowing(vehicle, (field) => vehicle.invalidSince(field) === undefined))

  const begins = (vehicle: AnyVehicleView): EdgeTimer | undefined => {
    const seenMs = vehicle.seenAt?.getTime()
    if (seenMs === undefined || !isValid(vehicle)) return undefined
    const known = beginning(vehicle, -Infinity)
    const since = known > firstCredibleMs ? known : seenMs
    return mayBegin(vehicle, since)
      ? { due: since + ms, since, acrossGap: fields.some((field) => isUncertain(vehicle, field)) }
      : undefined
  }

  return {
    name: `${inner.name}.after(${name})`,
    timing: createClockwork,
    begins: isFirst ? begins : undefined,
    detect(step) {
      const { timer, after, at, arrivedMs } = step
      if (step.event.topic === 'timer')
        return timer && { happened: lasted(timer, step), timer: { due: null, since: timer.since, told: true } }
      const { happened, memory } = inner.detect(step) ?? {}
      const result: EdgeResult<Lasted> = memory === undefined ? {} : { memory }
      if (timer === undefined && happened === undefined) return result
      const isTrue = isValid(after)
      if (isTrue && (happened !== undefined || (timer?.due === null && timer.told !== true))) {
        const since = credibleMs(beginning(after, (happened?.at ?? at).getTime()), arrivedMs)
        return { ...result, timer: { due: since + ms, since, acrossGap: (happened ?? timer)?.acrossGap === true } }
      }
      if (isTrue) return result
      if (!holds(knowing(after))) return { ...result, ...noLonger }
      // A value that the vehicle stopped reporting may come back, and it begins again then.
      return timer?.told === true
        ? result
        : { ...result, timer: { due: null, since: at.getTime(), acrossGap: timer?.acrossGap === true } }
    },
  }
}

/** There is a value, and it may be another one by now. */
export const isUncertain = (vehicle: AnyVehicleView, field: string): boolean =>
  vehicle.value(field) !== undefined && !vehicle.isCertain(field)

/** No vehicle of the maker sent anything before: a clock that was never set has an earlier time. */
const firstCredibleMs = /* @__PURE__ */ Date.UTC(2010)

function lasted({ due, since, acrossGap = false }: EdgeTimer, step: EdgeStep): Lasted {
  const dueMs = due ?? since
  const dueAt = new Date(dueMs)
  return { at: dueAt, dueAt, since: new Date(since), late: isLate(dueMs, step), acrossGap }
}

type Sensing<Happened extends Occurrence> = Pick<
  Edge<Happened>,
  'name' | 'fields' | 'reads' | 'topics' | 'timing' | 'detect'
> &
  Pick<Required<Edge>, 'begins'>

/** What both edges of a silence know. */
interface Counting {
  /** Whether a message ends a silence. */
  readonly counts: (event: FleetEvent) => boolean
}

const aList: Rule = {
  must: 'must be a list of at least one name',
  accepts: (value) => Array.isArray(value) && value.length > 0,
}

export function silence(duration: Duration, options: SilentOptions): Sensing<Silence> & Counting {
  const { ms, name } = readDuration('silent', duration)
  checkOptions<SilentOptions>('silent', options, { topics: aList, fields: aList, evenOffline: trueOrFalse })
  const { topics, fields = [], evenOffline = false } = options
  for (const field of fields) checkField('silent', field)
  const wrong = topics?.find((topic) => !wireTopics.includes(topic))
  if (wrong !== undefined)
    throw invalid(`\`silent\` was given the topic "${wrong}"`, `Topics: ${wireTopics.join(', ')}.`)
  const named = [topics?.join(' '), fields.join(' '), evenOffline ? 'evenOffline' : ''].filter(Boolean)
  const counts = (event: FleetEvent): boolean => {
    if (topics !== undefined && !topics.some((topic) => topic === event.topic)) return false
    if (fields.length === 0) return true
    const data: Readonly<Record<string, unknown>> = event.topic === 'data' ? event.data : {}
    return fields.some((field) => data[field] !== undefined)
  }
  return {
    name: `silent(${[name, ...named].join(',')})`,
    fields: [],
    reads: fields,
    topics: wireTopics,
    timing: createClockwork,
    counts,
    begins(vehicle) {
      const times = fields.flatMap((field) => vehicle.at(field)?.getTime() ?? [])
      const since = times.length > 0 ? Math.max(...times) : vehicle.seenAt?.getTime()
      if (since === undefined || (!evenOffline && vehicle.online === false)) return undefined
      return { due: since + ms, since, byArrival: true }
    },
    detect(step) {
      const { event, before, after, arrivedMs, timer } = step
      if (event.topic === 'timer') {
        const known: EdgeTimer = timer ?? { due: null, since: arrivedMs }
        const { since: lastAt, ...timeUp } = lasted(known, step)
        return { happened: { ...timeUp, lastAt }, timer: { due: null, since: known.since, told: true } }
      }
      if (!evenOffline && after.online === false) return noLonger
      const isBack = before.online === false && after.online === true
      return counts(event) || isBack ? { timer: { due: arrivedMs + ms, since: arrivedMs, byArrival: true } } : undefined
    },
  }
}

export function isSilence(edge: Edge): edge is Edge<Silence> & Counting {
  return typeof edge === 'object' && 'counts' in edge
}

/** It keeps the same time as the silence that it ends. A timer without a due time means that the vehicle is silent. */
export function hearing(silent: Edge<Silence> & Counting): Sensing<Heard> {
  return {
    name: `heardAgain(${silent.name})`,
    fields: [],
    reads: silent.reads,
    topics: wireTopics,
    timing: createClockwork,
    begins: silent.begins ?? (() => undefined),
    detect(step) {
      const { event, at, arrivedMs, timer } = step
      const found = silent.detect(step)
      if (event.topic === 'timer')
        return found?.happened === undefined || timer === undefined ? undefined : { timer: { ...timer, due: null } }
      const next = found?.timer === undefined ? {} : { timer: found.timer }
      if (timer?.due !== null || !silent.counts(event)) return timer?.due === null ? undefined : next
      const { since, acrossGap = false } = timer
      return { ...next, happened: { at, lastAt: new Date(since), silentMs: Math.max(0, arrivedMs - since), acrossGap } }
    },
  }
}
