import { checkOptions, required } from '../base/options.ts'
import type { Condition } from '../vehicles/edge.ts'
import { invalid } from './conditions.ts'

/** Options of {@link hours}. */
export interface HoursOptions {
  /** The time zone by its name in the IANA database, for instance `'Europe/Amsterdam'` or `'UTC'`. */
  readonly zone: string
}

const dayMs = 86_400_000

/** When a day or a month ends, by the clocks of a zone. */
export interface PeriodOptions {
  readonly every: 'day' | 'month'
  /** The time zone by its name in the IANA database, for instance `'Europe/Amsterdam'` or `'UTC'`. */
  readonly zone: string
}

/** The first moment after this one at which another day or month begins. Throws `option_invalid` for another `every`, and an unknown zone. */
export function periodsOf(what: string, options: PeriodOptions): (atMs: number) => number {
  checkOptions<PeriodOptions>(what, options, {
    every: required({ must: "must be 'day' or 'month'", accepts: (value) => value === 'day' || value === 'month' }),
    zone: required({ must: 'must be the name of a time zone', accepts: isText }, "For instance 'Europe/Amsterdam'."),
  })
  const clock = wallClock(options.zone)
  const period = (atMs: number): number => {
    const day = clock.day(atMs)
    const date = new Date(day * dayMs)
    return options.every === 'day' ? day : date.getUTCFullYear() * 12 + date.getUTCMonth()
  }
  return (atMs) => {
    const is = period(atMs)
    let next = atMs
    // In some zones, a clock that is put forward shows no midnight.
    do next = clock.next(next, [0])
    while (period(next) <= is)
    return next
  }
}

const isText = (value: unknown): boolean => typeof value === 'string' && value !== ''

/**
 * True from one time of the day to another, as a clock on the wall of the zone shows it: from `from`, which is included, to `until`, which is not. When
 * `until` is earlier, it is past midnight. It changes by itself, also while a vehicle sends nothing. The moment is the vehicle's own, so a drive at night
 * that is uploaded in the morning was at night.
 *
 * In the night in which the clock is put forward, the times in between do not exist. In the night in which it is put back, an hour is there twice,
 * and both count.
 *
 * Throws `option_invalid` for a time that is not `'00:00'` to `'23:59'` (`until` may be `'24:00'`), for two equal times, and for a zone that
 * does not exist.
 *
 * @example
 * ```ts
 * import { all, drives, hours, starts } from 'fleethook/when'
 *
 * export const atNight = starts(all(drives(), hours('22:00', '06:00', { zone: 'Europe/Amsterdam' }))).after({ minutes: 5 })
 * ```
 */
export function hours(from: string, until: string, options: HoursOptions): Condition {
  checkOptions<HoursOptions>('hours', options, {
    zone: required(
      { must: 'must be the name of a time zone', accepts: isText },
      "For instance { zone: 'Europe/Amsterdam' }.",
    ),
  })
  const [fromMs, untilMs] = [timeOfDay('from', from), timeOfDay('until', until)]
  const isAll = fromMs === 0 && untilMs === dayMs
  if (fromMs === untilMs || isAll)
    throw invalid(
      `\`hours\` is from ${from} to ${until}, which is ${isAll ? 'the whole day' : 'no time, or the whole day'}`,
      'Pass two different times, or leave `hours` out.',
    )
  const clock = wallClock(options.zone)
  const isIn = (atMs: number): boolean => {
    const ms = clock.timeOfDay(atMs)
    return fromMs < untilMs ? ms >= fromMs && ms < untilMs : ms >= fromMs || ms < untilMs
  }
  return {
    name: `hours(${from},${until},${options.zone})`,
    fields: [],
    daily: true,
    test: (vehicle) => isIn(vehicle.moment.getTime()),
    changesAt(vehicle) {
      let atMs = vehicle.moment.getTime()
      const is = isIn(atMs)
      do atMs = clock.next(atMs, [fromMs, untilMs % dayMs])
      while (isIn(atMs) === is)
      return atMs
    },
  }
}

/** In milliseconds since midnight. */
function timeOfDay(name: 'from' | 'until', given: unknown): number {
  const [, hour, minute] = (typeof given === 'string' && /^([01]\d|2[0-4]):([0-5]\d)$/.exec(given)) || []
  const ms = (Number(hour) * 60 + Number(minute)) * 60_000
  // Not a number for what is no time.
  if (name === 'from' ? ms < dayMs : ms <= dayMs) return ms
  const range = name === 'from' ? "'00:00' to '23:59'" : "'00:00' to '24:00'"
  throw invalid(`\`hours\` was given ${JSON.stringify(given)} as \`${name}\``, `Pass a time from ${range}.`)
}

/** What clocks of a zone show. */
interface WallClock {
  /** Milliseconds since midnight. */
  timeOfDay(atMs: number): number
  /** The number of the day. */
  day(atMs: number): number
  /** The first moment after this one at which it shows one of these times, is set, or a day of UTC begins. */
  next(atMs: number, times: readonly number[]): number
}

/** How far a zone is from UTC in a day of UTC. It changes `atMs`, or never. */
interface Day {
  readonly beforeMs: number
  readonly afterMs: number
  readonly atMs: number
}

/** Days of which the zone is known. Late messages are of few, and the calendar is slow to ask. */
const mostDays = 400

const clocks = new Map<string, WallClock>()

function wallClock(zone: string): WallClock {
  const known = clocks.get(zone) ?? createWallClock(zone)
  clocks.set(zone, known)
  return known
}

function createWallClock(zone: string): WallClock {
  const offsetAt = offsetsOf(zone)
  const days = new Map<number, Day>()

  function dayOf(atMs: number): Day {
    const startMs = Math.floor(atMs / dayMs) * dayMs
    const known = days.get(startMs)
    if (known !== undefined) return known
    const [beforeMs, afterMs] = [offsetAt(startMs), offsetAt(startMs + dayMs)]
    let [low, high] = [startMs, startMs + dayMs]
    // A zone is set at most once in a day.
    while (beforeMs !== afterMs && high - low > 1_000) {
      const middle = low + Math.floor((high - low) / 2_000) * 1_000
      if (offsetAt(middle) === beforeMs) low = middle
      else high = middle
    }
    const day = { beforeMs, afterMs, atMs: beforeMs === afterMs ? Infinity : high }
    if (days.size >= mostDays) days.clear()
    days.set(startMs, day)
    return day
  }

  const offset = (atMs: number): number => {
    const day = dayOf(atMs)
    return atMs < day.atMs ? day.beforeMs : day.afterMs
  }
  const timeOfDayAt = (atMs: number): number => (((atMs + offset(atMs)) % dayMs) + dayMs) % dayMs

  return {
    timeOfDay: timeOfDayAt,
    day: (atMs) => Math.floor((atMs + offset(atMs)) / dayMs),
    next(atMs, times) {
      const { atMs: setMs } = dayOf(atMs)
      const shown = timeOfDayAt(atMs)
      const waits = times.map((time) => (time > shown ? time - shown : time - shown + dayMs))
      const nextDay = (Math.floor(atMs / dayMs) + 1) * dayMs
      return Math.min(nextDay, setMs > atMs ? setMs : Infinity, ...waits.map((wait) => atMs + wait))
    },
  }
}

/** How far the clocks of a zone are ahead of UTC at a moment, in milliseconds. */
function offsetsOf(zone: string): (atMs: number) => number {
  let format: Intl.DateTimeFormat
  try {
    format = new Intl.DateTimeFormat('en-US', {
      timeZone: zone,
      hourCycle: 'h23',
      year: 'numeric',
      month: 'numeric',
      day: 'numeric',
      hour: 'numeric',
      minute: 'numeric',
      second: 'numeric',
    })
  } catch {
    throw invalid(
      `The zone ${JSON.stringify(zone)} does not exist here`,
      "Pass a name of the IANA database, such as 'Europe/Amsterdam' or 'UTC'.",
    )
  }
  return (atMs) => {
    const shown = new Map(format.formatToParts(atMs).map(({ type, value }) => [type as string, Number(value)]))
    const [year = 0, month = 0, day = 0] = ['year', 'month', 'day'].map((name) => shown.get(name))
    const [hour = 0, minute = 0, second = 0] = ['hour', 'minute', 'second'].map((name) => shown.get(name))
    return Date.UTC(year, month - 1, day, hour, minute, second) - Math.floor(atMs / 1_000) * 1_000
  }
}
