import { checkOptions, type Rule, trueOrFalse } from '../base/options.ts'
import type { FleetEvent } from '../events/event.ts'
import type { FieldValue } from '../events/values.ts'
import type {
  AnyVehicleView,
  Condition,
  Edge,
  EdgeResult,
  EdgeStep,
  EdgeTimer,
  EdgeTopic,
  Occurrence,
} from '../vehicles/edge.ts'
import { credibleMs } from '../vehicles/lag.ts'
import { Snapshot } from '../vehicles/state.ts'
import { wireTopics } from '../wire/envelope.ts'
import { createClockwork } from './clockwork.ts'
import { checkField, invalid } from './conditions.ts'
import { type Duration, readDuration } from './duration.ts'

export { type Duration, readDuration }

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
  /**
   * How long no message of the vehicle came before it was due, in milliseconds: the vehicle may have changed since. A parked vehicle is silent for hours.
   * A vehicle that was fast for ten seconds and then drove into a tunnel is not heard either: see `freshFor`.
   */
  readonly unheardMs: number
}

/** A vehicle has been silent: the occurrence of `silent`. */
export interface Silence extends TimeUp {
  /** When the last message that counts was received. */
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
   * silent on purpose, unless it sends values after that message.
   */
  readonly evenOffline?: boolean
}

/** A vehicle as if only some fields had values, each of them certain. */
export function knowing(vehicle: AnyVehicleView, isKnown: (field: string) => boolean = () => true): AnyVehicleView {
  if (vehicle instanceof Snapshot) return vehicle.through({ isKnown })
  // A view of a test.
  const value = (field: string): FieldValue | undefined => (isKnown(field) ? vehicle.value(field) : undefined)
  return {
    ...vehicle,
    value,
    isCertain: (field) => value(field) !== undefined,
    isOnlineCertain: vehicle.online !== undefined,
  }
}

/** A vehicle as if each of its values were certain, and had been reported just now. */
export function lastKnown(vehicle: AnyVehicleView): AnyVehicleView {
  if (vehicle instanceof Snapshot) return vehicle.through({ isKnown: () => true, isAnyAge: true })
  return { ...knowing(vehicle), at: () => vehicle.moment }
}

/** The timer for the moment at which a condition changes by itself. `undefined`: it does not. */
export function timerOf(
  changesAt: NonNullable<Condition['changesAt']>,
  vehicle: AnyVehicleView,
): EdgeTimer | undefined {
  const due = changesAt(knowing(vehicle))
  return due === undefined ? undefined : { due, since: vehicle.moment.getTime() }
}

/** The step of a late message at the time to which its edge has looked: what a time of the day began is not told again. */
export function inOrder(step: EdgeStep): EdgeStep {
  const { before, after, timer } = step
  if (timer === undefined || timer.since <= after.moment.getTime()) return step
  if (!(before instanceof Snapshot) || !(after instanceof Snapshot)) return step
  const lens = { momentMs: timer.since }
  return { ...step, before: before.through(lens), after: after.through(lens) }
}

/** Whether something lasts. `undefined`: a value that it needs is not known now. */
type Holds = (vehicle: AnyVehicleView) => boolean | undefined

/** When it began: at this time, or later if a value that it needs is younger. The message that began it may have come late. */
export function beginning(
  { fields, holds }: { readonly fields: readonly string[]; readonly holds: Holds },
  vehicle: AnyVehicleView,
  atMs: number,
): number {
  const sinceMs = (field: string): number => vehicle.since(field)?.getTime() ?? -Infinity
  const later = fields.map(sinceMs).filter((ms) => ms > atMs)
  const known = [atMs, ...later.toSorted((one, other) => one - other)]
  return known.find((ms) => holds(knowing(vehicle, (field) => sinceMs(field) <= ms)) === true) ?? atMs
}

/** An edge after which something may last. */
interface Starting extends Pick<Edge, 'name' | 'fields' | 'detect' | 'daily'> {
  /** When it may begin, or be over, by itself. */
  readonly changesAt?: Condition['changesAt']
  /** Whether it still lasts. */
  readonly holds?: Holds
  /** Whether it happens with the first value. Then it also counts for a state that was there before the edge. */
  readonly isFirst?: boolean
  /** Whether all conditions of `where` have been true since this time. */
  readonly mayBegin?: (vehicle: AnyVehicleView, sinceMs: number) => boolean
}

const isLate = (due: number, { arrivedMs }: EdgeStep): boolean => arrivedMs - due > 1_000

/**
 * It happens when something that an edge began has lasted for a time. Its timer is one of four: it runs (`due`), it is told (`told`, until what lasts
 * is over), it is interrupted because a value that it needs got too old (`due: null`, until there is one), or it waits for the moment at
 * which the edge may begin it (`begins`).
 */
export function lastedAfter(
  inner: Starting,
  duration: Duration,
): Pick<Edge<Lasted>, 'name' | 'timing' | 'detect'> & { readonly begins: NonNullable<Edge['begins']> | undefined } {
  const { ms, name } = readDuration('after', duration)
  const { fields, holds, isFirst = false } = inner
  const changesAt = inner.daily === true ? inner.changesAt : undefined
  if (holds === undefined)
    throw invalid(
      `\`${inner.name}\` is over at once, so it has no \`after\``,
      '`becomes`, `starts` and `ends` have one.',
    )
  const lasting = { fields, holds }

  const over = overBy(changesAt, ms)

  /** The time is up. The values may be too old now. */
  const isUp = (step: EdgeStep, timer: EdgeTimer): EdgeResult<Lasted> => {
    const isTrue = holds(knowing(step.after))
    if (isTrue === true) {
      const { since } = timer
      const due = over.ms(step.after) ?? null
      if (timer.told === true) return { timer: { ...timer, due } }
      if (changesAt !== undefined && Number(timer.due) < since + ms)
        return { timer: { ...timer, due: over.dueMs(since, step.after) } }
      return { happened: lasted(timer, step), timer: { due, since, told: true } }
    }
    return isTrue === false ? waiting(inner.detect(step)) : interrupted(step, timer)
  }

  return {
    name: `${inner.name}.after(${name})`,
    timing: createClockwork,
    begins: isFirst || changesAt !== undefined ? (vehicle) => begun(lasting, inner, over, vehicle) : undefined,
    detect(given) {
      const step = changesAt === undefined ? given : inOrder(given)
      const { before, after, at, arrivedMs } = step
      const timer = step.timer?.begins === true ? undefined : step.timer
      if (step.event.topic === 'timer' && timer !== undefined) return isUp(step, timer)
      const found = inner.detect(step)
      const { happened, memory } = found ?? {}
      const result: EdgeResult<Lasted> = memory === undefined ? {} : { memory }
      if (timer === undefined && happened === undefined) return waiting(found)
      const isTrue = holds(knowing(after))
      const isInterrupted = timer?.told !== true && (timer?.due === null || holds(knowing(before)) !== true)
      if (isTrue === true && (happened !== undefined || isInterrupted)) {
        const since = credibleMs(beginning(lasting, after, (happened?.at ?? at).getTime()), arrivedMs)
        return {
          ...result,
          timer: { due: over.dueMs(since, after), since, acrossGap: (happened ?? timer)?.acrossGap === true },
        }
      }
      if (isTrue === true || (isTrue === undefined && timer?.told === true)) return result
      return isTrue === false ? { timer: null, ...waiting(found) } : { ...result, ...interrupted(step, timer) }
    },
  }
}

/** When something that lasts is over by itself, by the time of day. */
interface Over {
  readonly changesAt: Condition['changesAt']
  ms(vehicle: AnyVehicleView): number | undefined
  /** When it has lasted long enough, or may be over. */
  dueMs(since: number, vehicle: AnyVehicleView): number
}

function overBy(changesAt: Condition['changesAt'], lasts: number): Over {
  const ms = (vehicle: AnyVehicleView): number | undefined => changesAt?.(knowing(vehicle))
  return { changesAt, ms, dueMs: (since, vehicle) => Math.min(since + lasts, ms(vehicle) ?? Infinity) }
}

/** The timer of a vehicle that was there before the edge. */
function begun(
  lasting: { readonly fields: readonly string[]; readonly holds: Holds },
  { isFirst = false, mayBegin = () => true }: Starting,
  { changesAt, dueMs }: Over,
  vehicle: AnyVehicleView,
): EdgeTimer | undefined {
  const { fields, holds } = lasting
  if (!isFirst || holds(knowing(vehicle)) !== true) {
    const timer = changesAt && timerOf(changesAt, vehicle)
    return timer && { ...timer, begins: true }
  }
  const seenMs = vehicle.seenAt?.getTime()
  if (seenMs === undefined) return undefined
  const known = beginning(lasting, vehicle, -Infinity)
  // Nobody knows since when a time of the day has decided.
  const since = changesAt !== undefined ? vehicle.moment.getTime() : known > firstCredibleMs ? known : seenMs
  return mayBegin(vehicle, since)
    ? { due: dueMs(since, vehicle), since, acrossGap: fields.some((field) => isUncertain(vehicle, field)) }
    : undefined
}

/** What an edge found that has not begun: with a timer, it may begin then. */
function waiting(found: EdgeResult = {}): EdgeResult<Lasted> {
  const { happened: _, earlier: __, ...others } = found
  const { timer } = others
  return timer === undefined || timer === null ? others : { ...others, timer: { ...timer, begins: true } }
}

/** It goes on, from its beginning, when the value is reported again. */
const interrupted = ({ at }: EdgeStep, timer: EdgeTimer | undefined): EdgeResult<Lasted> => ({
  timer: { due: null, since: at.getTime(), acrossGap: timer?.acrossGap === true },
})

/** There is a value, and it may be another one by now. */
export const isUncertain = (vehicle: AnyVehicleView, field: string): boolean =>
  vehicle.value(field) !== undefined && !vehicle.isCertain(field)

/** No vehicle of the maker sent anything before: a clock that was never set has an earlier time. */
const firstCredibleMs = /* @__PURE__ */ Date.UTC(2010)

function timeUp({ due, since, acrossGap = false }: EdgeTimer, step: EdgeStep): TimeUp {
  const dueMs = due ?? since
  const dueAt = new Date(dueMs)
  return { at: dueAt, dueAt, late: isLate(dueMs, step), acrossGap }
}

function lasted(timer: EdgeTimer, step: EdgeStep): Lasted {
  const { since } = timer
  const { after } = step
  const up = timeUp(timer, step)
  const heardMs = after instanceof Snapshot ? after.heardMs : (after.seenAt?.getTime() ?? since)
  const dueMs = up.dueAt.getTime()
  return { ...up, since: new Date(since), unheardMs: Math.min(Math.max(dueMs - heardMs, 0), dueMs - since) }
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
      const times = fields.flatMap((field) => [vehicle.at(field) ?? [], vehicle.invalidSince(field) ?? []].flat())
      const since = times.length > 0 ? Math.max(...times.map(Number)) : vehicle.seenAt?.getTime()
      const newestMs = Math.max(...vehicle.fields.map((field) => Number(vehicle.at(field))))
      if (since === undefined || (!evenOffline && !isAwake(vehicle, newestMs))) return undefined
      return { due: since + ms, since, byArrival: true }
    },
    detect(step) {
      const { event, before, after, arrivedMs, timer } = step
      if (event.topic === 'timer') {
        const known: EdgeTimer = timer ?? { due: null, since: arrivedMs }
        return {
          happened: { ...timeUp(known, step), lastAt: new Date(known.since) },
          timer: { due: null, since: known.since, told: true },
        }
      }
      const wasAwake = evenOffline || before.online !== false || typeof timer?.due === 'number'
      const goesOff = before.online !== false || offlineMs(after) > offlineMs(before)
      if (!evenOffline && after.online === false) {
        const isReport = event.topic === 'state' || event.topic === 'connectivity'
        if (isReport ? goesOff || !wasAwake : !wasAwake && !showsAwake(step)) return { timer: null }
      }
      return counts(event) || !wasAwake
        ? { timer: { due: arrivedMs + ms, since: arrivedMs, byArrival: true } }
        : undefined
    },
  }
}

/** Two clocks that are both right differ by less, and the last messages of a vehicle can come after the message that says that it sleeps. */
const trailingMs = 5_000

const offlineMs = (vehicle: AnyVehicleView): number => (vehicle instanceof Snapshot ? vehicle.offlineMs : -Infinity)

/** Not asleep and not offline, as far as its messages say: also when it sent values after the message that says so. */
const isAwake = (vehicle: AnyVehicleView, sentMs: number): boolean =>
  vehicle.online !== false || sentMs > offlineMs(vehicle) + trailingMs

/** Whether the vehicle itself sent this message, and not before it went offline. The documents of a vehicle come from the service. */
const showsAwake = ({ event, at, after, arrivedMs }: EdgeStep): boolean =>
  (event.topic === 'data' || event.topic === 'alerts' || event.topic === 'errors') &&
  isAwake(after, credibleMs(at.getTime(), arrivedMs))

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
