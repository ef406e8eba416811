import type { Location } from 'fleethook'
import {
  any,
  episode,
  type EpisodeEdge,
  type EpisodeOccurrence,
  growth,
  is,
  type Measures,
  metersBetween,
  path,
  range,
  span,
} from 'fleethook/when'

/** A plain model of episodes: all values of a vehicle at once, in lists, by its time. And fleets of vehicles that drive and charge. */

const second = 1_000
const minute = 60 * second
const hour = 60 * minute

/** One value of one field. Times are in milliseconds. */
export interface Value {
  readonly vin: string
  /** When the vehicle sent it, by its own clock. */
  readonly sentMs: number
  readonly arrivesMs: number
  readonly field: string
  readonly value: string | number | Location
  /** Values with the same number come in one message. */
  readonly message: number
}

/** The model does not need the types of measures. */
function plain<Of extends Measures>(edge: EpisodeEdge<Of>): EpisodeEdge {
  return edge
}

export const trip: EpisodeEdge = plain(
  episode('trip', {
    during: any(is('Gear', 'D'), is('Gear', 'R')),
    joins: { minutes: 3 },
    silence: { hours: 1 },
    measures: {
      odometer: span('Odometer'),
      energy: span('EnergyRemaining'),
      place: span('Location'),
      speed: range('VehicleSpeed'),
      route: path(),
    },
  }),
)
export const charge: EpisodeEdge = plain(
  episode('charge', {
    during: is('DetailedChargeState', 'Charging'),
    joins: { minutes: 15 },
    silence: { hours: 6 },
    measures: { percent: span('BatteryLevel'), kwh: growth('ACChargingEnergyIn', { startsAt: 0 }) },
  }),
)
export const fields: readonly [
  'Gear',
  ...(
    | 'Odometer'
    | 'EnergyRemaining'
    | 'Location'
    | 'VehicleSpeed'
    | 'DetailedChargeState'
    | 'BatteryLevel'
    | 'ACChargingEnergyIn'
  )[],
] = [
  'Gear',
  'Odometer',
  'EnergyRemaining',
  'Location',
  'VehicleSpeed',
  'DetailedChargeState',
  'BatteryLevel',
  'ACChargingEnergyIn',
]

/** What the model finds, and what was told, in a form that can be compared. */
export interface Plain {
  readonly start: number
  readonly end: number
  readonly paused: number
  readonly cut: boolean
  readonly missing: readonly string[]
  readonly values: Readonly<Record<string, unknown>>
}

const waits = 2 * minute
const corrects = hour

interface At {
  readonly at: number
  readonly value: Value['value']
  /** Its clock is fast, so the time is that of the receipt. */
  readonly isLoose?: boolean
}

interface Kind {
  readonly field: string
  readonly on: readonly string[]
  readonly joins: number
  readonly silence: number
}
const kinds: Readonly<Record<'trip' | 'charge', Kind>> = {
  trip: { field: 'Gear', on: ['D', 'R'], joins: 3 * minute, silence: hour },
  charge: { field: 'DetailedChargeState', on: ['Charging'], joins: 15 * minute, silence: 6 * hour },
}

/** All episodes of one vehicle in the values that arrived. */
export function modelOf(which: 'trip' | 'charge', values: readonly Value[], endMs: number): readonly Plain[] {
  const { field, on, joins, silence } = kinds[which]
  // No time of a vehicle is later than its receipt. Of two values with the same time, the one that arrived last counts.
  const arrived = values.toSorted((one, other) => one.arrivesMs - other.arrivesMs || one.message - other.message)
  const lists = new Map<string, Map<number, Omit<At, 'at'>>>()
  const heard = new Set<number>()
  for (const each of arrived) {
    const at = Math.min(each.sentMs, each.arrivesMs)
    heard.add(at)
    const list = lists.get(each.field) ?? new Map<number, Omit<At, 'at'>>()
    list.set(at, { value: each.value, isLoose: each.sentMs > each.arrivesMs })
    lists.set(each.field, list)
  }
  const sortedOf = (name: string): readonly At[] =>
    [...(lists.get(name) ?? [])].map(([at, one]) => ({ at, ...one })).toSorted((one, other) => one.at - other.at)
  const listOf = (name: string): readonly At[] => {
    const list = sortedOf(name)
    if (name !== 'Odometer') return list
    // It never falls.
    let most = 0
    return list.filter(({ value }) => Number(value) >= most - 0.1 && (most = Math.max(most, Number(value))) > 0)
  }
  const times = [...heard].toSorted((one, other) => one - other)
  // Intervals.
  const intervals: { start: number; end: number; cut: boolean }[] = []
  const states = listOf(field)
  for (let index = 0; index < states.length; index += 1) {
    const state = states[index]
    if (state === undefined || !on.includes(String(state.value))) continue
    if ((intervals.at(-1)?.end ?? -1) > state.at) continue
    const off = states.find(({ at, value }) => at > state.at && !on.includes(String(value)))?.at ?? Infinity
    const after = times.filter((at) => at >= state.at)
    const last = after.find((at, order) => (after[order + 1] ?? endMs) - at >= silence) ?? Infinity
    if (last < off) intervals.push({ start: state.at, end: last, cut: true })
    else if (off < Infinity) intervals.push({ start: state.at, end: off, cut: false })
  }
  // Interruptions.
  const joined: { start: number; end: number; cut: boolean; paused: number; parts: (readonly [number, number])[] }[] =
    []
  for (const { start, end, cut } of intervals) {
    const before = joined.at(-1)
    if (before !== undefined && !before.cut && start - before.end <= joins) {
      before.paused += start - before.end
      before.parts.push([start, end])
      before.end = end
      before.cut = cut
    } else joined.push({ start, end, cut, paused: 0, parts: [[start, end]] })
  }
  // How far the odometer is in episodes.
  let counted: number | undefined = numberOf(listOf('Odometer')[0])
  return joined.map((one, index) => {
    const { start, end, cut, paused, parts } = one
    const next = joined[index + 1]?.start ?? Infinity
    const earlier = joined[index - 1]
    // What was said last before a silence is from before it.
    const parkedAt = earlier === undefined ? -Infinity : earlier.end + (earlier.cut ? 1 : 0)
    const isOn = (at: number): boolean => parts.some(([from, to]) => at >= from && at <= to)
    const missing: string[] = []
    const ends = (name: string): { from: At | undefined; to: At | undefined; isMissing: boolean } => {
      const list = listOf(name)
      const known = list.findLast(({ at }) => at <= start)
      const before = known !== undefined && known.at >= parkedAt ? known : undefined
      const since = list.filter(({ at }) => at > start && (at < end || (cut && at === end)))
      const firstAfter = list.find(({ at }) => at >= end && at < next)
      const last = since.at(-1)
      const change = Number(firstAfter?.value) - Number(last?.value)
      const isBack = last !== undefined && (Number(last.value) - Number((before ?? since[0])?.value)) * change < 0
      const isSoon = firstAfter !== undefined && firstAfter.at <= end + waits
      const isOfEnd =
        firstAfter !== undefined &&
        !cut &&
        (isSoon || firstAfter.at <= end + corrects) &&
        (typeof firstAfter.value !== 'number' || !isBack || (isSoon && Math.abs(change) <= 2))
      const to = isOfEnd ? firstAfter : last
      const first = since[0] ?? (isOfEnd ? firstAfter : undefined)
      // A value from before another episode only when no other one comes.
      const isOld = before === undefined && known !== undefined && (first === undefined || first.at === to?.at)
      // What was said right after the start is that of the start, when it cannot have changed so much since.
      const isFar =
        before !== undefined && first !== undefined && first.at !== to?.at && cannot(name, before, first, start)
      const usedFrom = isFar ? first : (before ?? (isOld ? known : first))
      // It may be that of a charge since.
      const isGuess = isOfEnd && last === undefined && !isSoon && name !== 'Odometer'
      const isMissing =
        usedFrom === undefined ||
        to === undefined ||
        isOld ||
        isGuess ||
        usedFrom.at === to.at ||
        usedFrom.at > start + waits ||
        (!isOfEnd && to.at < end - waits)
      return { from: usedFrom, to, isMissing }
    }
    const result: Record<string, unknown> = {}
    const spanOf = (measure: string, name: string): void => {
      const found = ends(name)
      const { isMissing } = found
      // One value is that of one end.
      const isOne = found.from?.at === found.to?.at
      const isAfter = found.to !== undefined && found.to.at >= end && !cut
      const from = isOne && isAfter ? undefined : found.from
      const to = isOne && !isAfter ? undefined : found.to
      if (isMissing) missing.push(measure)
      result[measure] = {
        from: from?.value ?? null,
        to: to?.value ?? null,
        fromAt: from?.at ?? null,
        toAt: to?.at ?? null,
      }
    }
    if (which === 'trip') {
      spanOf('odometer', 'Odometer')
      const odometer = ends('Odometer')
      const [begins, goesTo] = [numberOf(odometer.from), numberOf(odometer.to)]
      if ((begins ?? goesTo ?? 0) - (counted ?? Infinity) > 0.2 && !missing.includes('odometer'))
        missing.push('odometer')
      counted = goesTo ?? begins ?? counted
      spanOf('energy', 'EnergyRemaining')
      spanOf('place', 'Location')
      const speeds = listOf('VehicleSpeed').filter(({ at }) => isOn(at))
      const numbers = speeds.map(({ value }) => Number(value))
      if (numbers.length === 0) missing.push('speed')
      result['speed'] =
        numbers.length === 0 ? { least: null, most: null } : { least: Math.min(...numbers), most: Math.max(...numbers) }
      const { from, to, isMissing } = ends('Location')
      if (isMissing) missing.push('route')
      const places = listOf('Location').filter(({ at }) => at > start && (at < end || (cut && at === end)))
      const all = [
        ...(from !== undefined && from.at <= start ? [from] : []),
        ...places,
        ...(to !== undefined && to.at >= end && !cut ? [to] : []),
      ]
      result['meters'] =
        from === undefined || to === undefined || from.at === to.at || from.at < parkedAt ? null : lengthOf(all)
    } else {
      spanOf('percent', 'BatteryLevel')
      const list = listOf('ACChargingEnergyIn')
      // A counter that is reported with the start has run since the value before.
      const before = list.findLast(({ at }) => at < start)
      const { to } = ends('ACChargingEnergyIn')
      const isOfEnd = to !== undefined && to.at >= end && !cut
      const counted = list.filter(
        ({ at }) =>
          at >= start &&
          at < next &&
          (at < end || (cut && at === end) || (!cut && at <= end + waits) || (isOfEnd && at === to.at)),
      )
      const { sum, isUnsure } = counterOf(counted, before, { start, parts, parkedAt })
      const isNothing = counted.every(({ at }) => at === start)
      // A counter that starts at 0 has its first value of the end.
      const isStale = !isNothing && !isOfEnd && (to?.at ?? 0) < end - waits
      if (isNothing || isStale || isUnsure) missing.push('kwh')
      result['kwh'] = isNothing ? null : Math.round(sum * 1e6) / 1e6
    }
    return { start, end, paused, cut, missing: missing.toSorted(), values: result }
  })
}

/** How much a counter grew, and whether some of it may be of a charge before, or was lost because it began again unheard. */
function counterOf(
  counted: readonly At[],
  before: At | undefined,
  charge: { readonly start: number; readonly parts: readonly (readonly [number, number])[]; readonly parkedAt: number },
): { readonly sum: number; readonly isUnsure: boolean } {
  const { start, parts, parkedAt } = charge
  let [sum, last, ms] = [0, Number(before?.value ?? 0), 0]
  let isUnsure = false
  const [first, newest] = [counted[0], counted.at(-1)]
  // It went on, and grew more until its first number than the charge explains.
  if (before !== undefined && first !== undefined && newest !== undefined && Number(first.value) >= last / 2) {
    const pace = (Number(newest.value) - Number(first.value)) / Math.max(1, newest.at - first.at)
    const explained = pace * (first.at - start)
    const most = before.at >= parkedAt - waits ? 2 * explained + 0.5 : explained + 0.2
    isUnsure = Number(first.value) - last > most
  }
  for (const { value, at } of counted) {
    const isReset = Number(value) < last / 2
    const grown = isReset ? Number(value) : Number(value) - last
    const active = parts.reduce((all, [from, end]) => all + Math.max(0, Math.min(at, end) - from), 0)
    const expected = ms > 0 ? (sum * (active - ms)) / ms : 0
    // It was silent for long, and grew less than before.
    const isLess = active - ms > 10 * minute && expected - grown > 0.5 + expected / 5
    isUnsure ||= isReset ? expected > 0.5 : isLess
    sum += grown
    last = Number(value)
    ms = active
  }
  return { sum, isUnsure }
}

/** Whether a value cannot have changed so much since the start: at once, and in a minute. */
function cannot(name: string, before: At, first: At, start: number): boolean {
  if (first.isLoose === true) return false
  const [atOnce, perMinute] =
    name === 'Odometer' ? [2, 3] : name === 'Location' ? [500, 5_000] : [name === 'BatteryLevel' ? 20 : 10, 15]
  const isPlaces = typeof before.value === 'object' && typeof first.value === 'object'
  const change = isPlaces
    ? metersBetween(before.value, first.value)
    : Math.abs(Number(first.value) - Number(before.value))
  return change > atOnce + (perMinute * (first.at - start)) / minute
}

const numberOf = (one: At | undefined): number | undefined => (typeof one?.value === 'number' ? one.value : undefined)

/** The length of a way, in steps of at least 25 meters. */
function lengthOf(places: readonly At[]): number {
  let meters = 0
  let from: Location | undefined
  for (const [index, { value }] of places.entries()) {
    if (typeof value !== 'object') continue
    const step = from === undefined ? 0 : metersBetween(from, value)
    if (from !== undefined && step < 25 && index < places.length - 1) continue
    meters += step
    from = value
  }
  return meters
}

/** What was told in the end, without what was revoked. */
export function plainOf(told: EpisodeOccurrence): Plain {
  const values: Record<string, unknown> = {}
  for (const [name, value] of Object.entries(told)) {
    if (['odometer', 'energy', 'place', 'percent'].includes(name) && isSpan(value)) {
      const { from, to, fromAt, toAt } = value
      values[name] = { from, to, fromAt: fromAt?.getTime() ?? null, toAt: toAt?.getTime() ?? null }
    } else if (name === 'speed' || name === 'kwh') values[name] = value
    else if (name === 'route' && typeof value === 'object' && value !== null && 'meters' in value)
      values['meters'] = value.meters
  }
  const { startedAt, endedAt, pausedMs: paused, cut, missing } = told
  return { start: startedAt.getTime(), end: endedAt.getTime(), paused, cut, missing: missing.toSorted(), values }
}

const isSpan = (value: unknown): value is { from: unknown; to: unknown; fromAt: Date | null; toAt: Date | null } =>
  typeof value === 'object' && value !== null && 'fromAt' in value

/** Whether two are the same. The end of a cut one can be a minute earlier, and then its other values are not compared. */
export function isSame(one: Plain, other: Plain): boolean {
  if (one.start !== other.start || one.cut !== other.cut || one.paused !== other.paused) return false
  if (one.cut && one.end !== other.end) return Math.abs(one.end - other.end) <= minute
  if (one.end !== other.end || one.missing.join() !== other.missing.join()) return false
  return Object.entries(one.values).every(([name, value]) => {
    const its = other.values[name]
    // Whether a position that is 25 meters away counts is a matter of rounding.
    if (name === 'meters' && typeof value === 'number' && typeof its === 'number')
      return Math.abs(value - its) <= Math.max(30, value / 200)
    return JSON.stringify(value) === JSON.stringify(its)
  })
}

/** How the messages of a fleet come. */
export interface Disorder {
  /** All fields of a moment come in one message. */
  readonly together?: true
  /** Each message is late by up to this. */
  readonly shuffledMs?: number
  /** A tenth of the messages is late by up to this. */
  readonly lateMs?: number
  /** The part of the activities in which nothing arrives for 10 minutes to 2 hours, and later at once. */
  readonly holes?: number
  /** The part of the messages that come twice. */
  readonly twice?: number
  /** The vehicles' clocks are ahead by something between these two. Negative: behind. */
  readonly clockMs?: readonly [least: number, most: number]
}

/** Numbers that look random, and are the same for the same seed. */
export function numbers(seed: number): () => number {
  let state = (seed * 2_654_435_761 + 12_345) >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Values of a fleet in the order of their arrival. */
export function fleet(
  vehicles: number,
  activities: number,
  seed: number,
  disorder: Disorder,
  startMs: number,
): readonly Value[] {
  const random = numbers(seed)
  const between = (least: number, most: number): number => Math.round(least + random() * (most - least))
  const all: Value[] = []
  let message = 0
  for (let car = 0; car < vehicles; car += 1) {
    const vin = `0FLEETV14T${String(car).padStart(7, '0')}`
    const clock = disorder.clockMs === undefined ? 0 : between(...disorder.clockMs)
    // Some vehicles say half or a third as much as others.
    const pace = between(1, 3)
    let now = startMs + between(0, 10 * minute)
    let [odometer, energy, counter] = [between(1_000, 90_000), between(30, 60), 0]
    let place: Location = { latitude: 52 + random() / 10, longitude: 4.8 + random() / 10 }
    const said: { at: number; data: Record<string, Value['value']> }[] = []
    const say = (at: number, data: Record<string, Value['value']>): void => void said.push({ at, data })
    const state = (): Record<string, Value['value']> => ({
      Odometer: round(odometer),
      EnergyRemaining: round(energy),
      Location: place,
    })
    say(now, { Gear: 'P', DetailedChargeState: 'Disconnected', ...state(), BatteryLevel: round(energy) })
    for (let nth = 0; nth < activities; nth += 1) {
      const begins = said.length
      now += between(4 * minute, 40 * minute)
      const drives = random() < 0.6
      let isAway = false
      if (drives) {
        for (let legs = between(1, 3); legs > 0; legs -= 1) {
          const end = now + (random() < 0.05 ? between(40 * minute, 70 * minute) : between(2 * minute, 9 * minute))
          say(now, { Gear: random() < 0.3 ? 'R' : 'D' })
          for (let at = now + between(1, 9_000); at < end; at += pace * between(5_000, 9_000)) {
            odometer += 0.08
            energy -= 0.03
            place = {
              latitude: round(place.latitude + random() / 900),
              longitude: round(place.longitude + random() / 900),
            }
            const turn = random()
            say(
              at,
              turn < 0.4
                ? { Location: place }
                : turn < 0.6
                  ? { VehicleSpeed: between(0, 70) }
                  : turn < 0.8
                    ? { Odometer: round(odometer) }
                    : { EnergyRemaining: round(energy) },
            )
          }
          now = end
          // An end can be lost.
          if (legs > 1 || random() > 0.08) say(now, { Gear: 'P' })
          else if (random() < 0.5) isAway = true
          if (legs > 1) now += between(5_000, 10 * minute)
        }
        for (const [name, value] of Object.entries(state()))
          if (random() < 0.7) say(now + between(0, 100_000), { [name]: value })
        // A parked vehicle says the same again, and its energy falls a little.
        if (random() < 0.3) say(now + between(101_000, 118_000), { EnergyRemaining: round(energy - 0.02) })
        if (random() < 0.2) say(now + between(3 * minute, 50 * minute), { Odometer: round(odometer) })
      } else {
        if (random() < 0.5) counter = 0
        for (let parts = between(1, 3); parts > 0; parts -= 1) {
          const end = now + between(5 * minute, 20 * minute)
          say(now, { DetailedChargeState: 'Charging' })
          for (let at = now + between(1, 9_000); at < end; at += pace * between(10_000, 40_000)) {
            counter += 0.1
            energy += 0.1
            say(at, random() < 0.5 ? { ACChargingEnergyIn: round(counter) } : { BatteryLevel: round(energy) })
          }
          now = end
          say(now, { DetailedChargeState: parts > 1 ? 'Stopped' : 'Complete' })
          if (parts > 1) now += between(10_000, 25 * minute)
        }
        say(now + between(0, 100_000), { ACChargingEnergyIn: round(counter) })
        say(now + between(0, 100_000), { BatteryLevel: round(energy) })
        // The vehicle heats itself from the socket.
        if (random() < 0.3) say(now + between(4 * minute, 12 * minute), { ACChargingEnergyIn: round((counter += 0.2)) })
      }
      // Nothing is heard for a while.
      if (isAway) now += between(120 * minute, 150 * minute)
      now += 2 * minute
      // A field that does not come at all.
      if (random() < 0.05) {
        const lost =
          ['Odometer', 'EnergyRemaining', 'Location', 'BatteryLevel', 'ACChargingEnergyIn'][between(0, 4)] ?? ''
        for (const each of said.slice(begins)) delete each.data[lost]
      }
    }
    // What does not arrive for a while.
    const holes: { from: number; to: number; isLost: boolean }[] = []
    for (let at = startMs; at < now; at += hour)
      if (random() < (disorder.holes ?? 0.02)) {
        const from = at + between(0, hour)
        holes.push({
          from,
          to: from + between(10 * minute, 2 * hour),
          isLost: random() < (disorder.holes === undefined ? 0.5 : 0),
        })
      }
    for (const { at, data } of said.toSorted((one, other) => one.at - other.at)) {
      const entries = Object.entries(data)
      const hole = holes.find(({ from, to }) => at >= from && at < to)
      if (hole?.isLost === true) continue
      message += 1
      for (const [field, value] of entries) {
        if (disorder.together !== true) message += 1
        const late =
          (disorder.lateMs !== undefined && random() < 0.1 ? random() * disorder.lateMs : 0) +
          random() * (disorder.shuffledMs ?? 0)
        // An upload is six times as fast as what it reports.
        const arrives = hole === undefined ? at + Math.round(late) : hole.to + Math.round((at - hole.from) / 6)
        const one = { vin, sentMs: at + clock, arrivesMs: arrives + 300, field, value, message }
        all.push(one)
        if (random() < (disorder.twice ?? 0.03))
          all.push({ ...one, arrivesMs: arrives + between(300, 20_000), message: (message += 1) })
      }
    }
  }
  return all.toSorted((one, other) => one.arrivesMs - other.arrivesMs || one.message - other.message)
}

const round = (value: number): number => Math.round(value * 1e5) / 1e5
