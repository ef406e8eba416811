import type { Law } from '../events/laws.ts'
import type { FieldValue } from '../events/values.ts'
import { canBe, canFollow } from '../vehicles/belief.ts'

/*
 * What is believed of one field, in the order of the vehicle's time, and the line that its counter makes.
 *
 * A value that can follow the last one is believed. A value that cannot waits for the next one: when that goes on from it, both are believed (a `jump`, or
 * the `reset` of a counter), and otherwise it is left out. The line never falls: it goes on over resets, and stands still where a counter jumps.
 */

/** A value that a vehicle said. `isLoose`: the vehicle's clock was wrong, so `at` is the time of the receipt and says nothing about its speed. */
export interface Said {
  readonly at: number
  readonly value: FieldValue
  readonly isLoose?: true
}

/**
 * - `old`: the number from before the vehicle was plugged in, said again.
 * - `reset`: the counter began again.
 * - `unsure`: it may have begun again and grown more than that.
 * - `jump`: physics does not allow the way from the value before, but the next one confirms it. Nobody knows how much it grew.
 * - `loose`: its time is the time of the receipt.
 */
export type Mark = 'old' | 'reset' | 'unsure' | 'jump' | 'loose'

/** A value that is believed. `total`: its place on the line of a counter. */
export type Entry = readonly [at: number, value: FieldValue, total?: number | null, mark?: Mark]

/** Its place on the line; for a level, which has none, the value. */
export const totalOf = ([, value, total]: Entry): number => total ?? Number(value)

/** What is known of a field up to a time. */
export interface Series {
  /** The last value that is believed; when a counter stepped back a little, the largest. */
  readonly last?: Entry | undefined
  readonly isLoose?: true | undefined
  /** It cannot follow the last one, and waits for the next. */
  readonly held?: Said | undefined
  /** For a counter: the value before the last one, and the last value before a jump or a reset. The line may come back to them. */
  readonly prior?: Entry | undefined
  readonly base?: Entry | undefined
  /** How many values came since `base`. */
  readonly sinceBase?: number | undefined
  /** When the line was unsure last. */
  readonly unsureAt?: number | undefined
  /** The vehicle was plugged in since, and the counter has not begun again. */
  readonly renews?: true | undefined
}

/** The believed values of a field in a time. */
export interface Line {
  readonly law: Law | undefined
  /** The last one before. */
  readonly before: Entry | undefined
  readonly entries: readonly Entry[]
  /** When the line was unsure last, before. */
  readonly unsureAt: number
  /** What came too late for its place. */
  readonly late: readonly Said[]
  /** When values came that are left out, or still wait for the next one. */
  readonly odd: readonly number[]
  readonly series: Series
}

/** When a vehicle was unplugged, from and to, and when it began to charge. */
export interface Plugs {
  readonly splits: readonly (readonly [from: number, to: number])[]
  readonly starts: readonly number[]
}

/** Since when a counter can have counted from 0. `isCharged`: a charge began since. */
interface Plugged {
  readonly since: number
  readonly isCharged: boolean
}

/** The law of a counter of which the catalogue knows none. */
export const anyCounter: Law = {
  kind: 'counter',
  perMinute: Infinity,
  atOnce: Infinity,
  back: Infinity,
  restarts: true,
}

/** How long a value waits for the next one. */
const longestHeldMs = 86_400_000
/** When so many values go on from each other, they are not odd values that happen to agree. */
const fewValues = 4
/** A counter that is carried over resets in this time after the charge began. */
const lateResetMs = 120_000
const noPlugs: Plugs = { splits: [], starts: [] }

/** The most that a value changes in a time. */
export const mostIn = ({ atOnce, perMinute }: Law, ms: number): number =>
  perMinute === Infinity ? Infinity : atOnce + (perMinute * Math.max(0, ms)) / 60_000

/** A counter can step back a little, but not to less than half. */
const stepBack = ({ back = 0 }: Law, value: number): number => Math.min(value / 2, back)

/** What can be believed of these values, which are in the order of their times. `isLast`: a reset needs no other value. */
export function lineOf(
  law: Law | undefined,
  before: Series,
  values: readonly Said[],
  { plugs = noPlugs, isLast = true }: { readonly plugs?: Plugs; readonly isLast?: boolean } = {},
): Line {
  const late: Said[] = []
  const { held, ...known } = before
  const walk = new Walk(known, plugs)
  const inOrder = held === undefined ? values : [held, ...values].toSorted((one, other) => one.at - other.at)
  for (const one of inOrder) {
    if (one.at <= (before.last?.[0] ?? -Infinity)) late.push(one)
    else if (law === undefined) walk.believe(one)
    else if (canBe(law, one.value) && (law.kind !== 'counter' || typeof one.value === 'number')) walk.take(one, law)
    else walk.odd.push(one.at)
  }
  const { series } = walk
  if (isLast && law !== undefined) walk.end(law)
  const waiting = walk.series.held
  const odd = waiting === undefined ? walk.odd : [...walk.odd, waiting.at]
  return { law, before: before.last, unsureAt: before.unsureAt ?? -Infinity, entries: walk.entries, late, odd, series }
}

/** Whether a value that came too late for its place can be true. */
export const isLikely = ({ law, series: { last } }: Line, { at, value }: Said): boolean =>
  law === undefined ||
  (canBe(law, value) &&
    (last === undefined || law.kind === 'counter' || canFollow(law, [at, value], [last[0], last[1]])))

/** Goes over the values of a field. */
class Walk {
  readonly entries: Entry[] = []
  readonly odd: number[] = []
  series: Series
  readonly #plugs: Plugs
  /** The last value that is folded. */
  readonly #before: Entry | undefined

  constructor(series: Series, plugs: Plugs) {
    this.series = series
    this.#before = series.last
    this.#plugs = plugs
  }

  take(one: Said, law: Law): void {
    const { last, held } = this.series
    if (last === undefined) return this.believe(one, law)
    const follows = this.#follows(law, last, one, this.series.isLoose)
    if (held === undefined) return follows ? this.#goOn(law, one) : this.#hold(one)
    const isRenewed = this.#renewedBy(law, held)
    // Nothing else came of its charge.
    if (isRenewed && this.#isApart(held, one) && (held.value !== 0 || !follows)) {
      this.#turn(law, held)
      return this.take(one, law)
    }
    const confirms = this.#canConfirm(law, held, one) && this.#follows(law, [held.at, held.value], one, held.isLoose)
    const isTwo = !follows || (isRenewed && held.value !== 0) || this.#earlier(law, held) !== undefined
    if (confirms && isTwo) return this.#confirm(law, held, one, isRenewed)
    this.odd.push(held.at)
    if (follows) this.#goOn(law, one, confirms && law.restarts === true)
    else this.#hold(one)
  }

  /** The next value goes on from the value that waits. */
  #confirm(law: Law, held: Said, one: Said, isRenewed: boolean): void {
    if (!isRenewed && this.#comesBack(law, held)) this.believe(held, law)
    else if (!isRenewed && this.#comesBack(law, one)) {
      // The value that waited was odd, too. Or the counter began again.
      this.odd.push(held.at)
      return this.believe(one, law, true)
    } else this.#turn(law, held)
    this.believe(one, law)
  }

  /** The value goes on from the last one, or, where zeros agreed that may be bad ones, from the one before them. */
  #goOn(law: Law, one: Said, isUnsure = false): void {
    const { last, base } = this.series
    const isBack =
      law.restarts === true && last?.[1] === 0 && base !== undefined && Number(one.value) >= Number(base[1])
    this.believe(one, law, (isBack && this.#comesBack(law, one)) || isUnsure)
  }

  /** A 0 says nothing about an odometer. */
  #canConfirm({ kind, restarts }: Law, held: Said, one: Said): boolean {
    if (kind === 'counter' && restarts !== true && (one.value === 0 || held.value === 0)) return false
    return !(restarts === true && this.#isApart(held, one)) && one.at - held.at <= longestHeldMs
  }

  /** The first number of a charge says nothing about the last one of the charge before. */
  #isApart(held: Said, one: Said): boolean {
    return this.#plugs.splits.some(([from, to]) => from > held.at && to <= one.at)
  }

  /** A value from before the last one, or from before a jump, from which this one goes on. */
  #earlier(law: Law, one: Said): Entry | undefined {
    const { last, prior, base } = this.series
    if (law.kind !== 'counter') return undefined
    const isFall = Number(one.value) < Number(last?.[1])
    return [isFall ? prior : undefined, base].find(
      (each) => each !== undefined && this.#follows(law, each, one, undefined),
    )
  }

  /** Two values go on from an earlier one: what came between was not true after all. The line never falls below what is folded. */
  #comesBack(law: Law, held: Said): boolean {
    const earlier = this.#earlier(law, held)
    if (earlier === undefined) return false
    const isFolded = this.#before !== undefined && this.#before[0] > earlier[0]
    const total = Math.max(totalOf(earlier), isFolded ? totalOf(this.#before) : 0)
    while ((this.entries.at(-1)?.[0] ?? 0) > earlier[0]) this.entries.pop()
    this.series = { last: [earlier[0], earlier[1], total], unsureAt: this.series.unsureAt }
    return true
  }

  /** Nothing came after a value that waits. When it goes on from the one before the last one, one of both is odd. */
  end(law: Law): void {
    const { held, last, prior } = this.series
    if (held === undefined || last === undefined) return
    if (this.#renewedBy(law, held)) return this.#turn(law, held)
    const newest = this.entries.at(-1)
    const isFall = law.kind === 'counter' && Number(held.value) < Number(last[1])
    if (newest?.[0] !== last[0] || prior === undefined || !isFall || !this.#follows(law, prior, held, undefined)) return
    this.entries.splice(-1, 1, [newest[0], newest[1], newest[2] ?? null, 'unsure'])
  }

  #hold(one: Said): void {
    this.series = { ...this.series, held: one }
  }

  #follows(law: Law, [at, value]: Entry, next: Said, isLoose: true | undefined): boolean {
    const fall = law.kind === 'counter' ? Number(value) - Number(next.value) : 0
    if (fall > 0) return fall <= (this.#plugged(next) === undefined ? stepBack(law, Number(value)) : Number(value) / 50)
    const isTimed = isLoose === undefined && next.isLoose === undefined
    return canFollow(isTimed ? law : { ...law, perMinute: Infinity }, [at, value], [next.at, next.value])
  }

  /** Since when the counter can have counted from 0. `undefined`: the vehicle was not unplugged since the last value. */
  #plugged({ at }: Said): Plugged | undefined {
    const { last = [at], renews } = this.series
    const { splits, starts } = this.#plugs
    const split =
      renews === true
        ? splits.findLast(([from]) => from <= last[0])
        : splits.find(([from, to]) => from <= at && to > last[0])
    if (split === undefined) return renews === undefined ? undefined : { since: last[0], isCharged: true }
    const [from, to] = split
    const start = starts.find((each) => each >= from)
    const isCharged = start !== undefined && start <= at
    return { since: isCharged ? start : Math.min(to, at), isCharged }
  }

  /** Whether a value that waits is the first of a counter that begins again. */
  #renewedBy(law: Law, held: Said): boolean {
    const { last } = this.series
    const plugged = this.#plugged(held)
    if (law.restarts !== true || last === undefined || plugged === undefined) return false
    return Number(held.value) < Number(last[1]) && Number(held.value) <= mostIn(law, held.at - plugged.since)
  }

  /** A value that cannot follow the last one is true. */
  #turn(law: Law, held: Said): void {
    const { last } = this.series
    const isRenewed = this.#renewedBy(law, held)
    const total = last?.[2] ?? undefined
    const [value, before] = [Number(held.value), Number(last?.[1])]
    const isLess = law.restarts === true && value < before
    // It began near 0. Otherwise it was corrected, and nobody knows by how much it grew.
    const isSmall = value < before / 2 && value <= mostIn(law, held.at - (last?.[0] ?? 0))
    const isReset = isLess && (isRenewed || isSmall)
    const now = total === undefined ? undefined : isReset ? total + value : total
    this.#add(held, now, isReset ? 'reset' : 'jump')
    if (isRenewed) this.series = { ...this.series, base: undefined }
  }

  /** A value goes on from the last one. `isUnsure`: the value that is left out for it may have been true. */
  believe(one: Said, law?: Law, isUnsure = false): void {
    const { last } = this.series
    if (law?.kind !== 'counter') return this.#add(one, undefined)
    this.#count(one, law, last, isUnsure)
  }

  #count(one: Said, law: Law, last: Entry | undefined, isUnsure: boolean): void {
    const value = Number(one.value)
    if (last === undefined) return this.#add(one, value)
    const [before, total] = [Number(last[1]), totalOf(last)]
    const plugged = law.restarts === true ? this.#plugged(one) : undefined
    const isCharged = plugged?.isCharged === true
    if (isCharged && value <= before) return this.#add(one, total, 'old')
    const ms = one.at - (plugged?.since ?? 0)
    const isBoth = isCharged && value <= mostIn(law, ms)
    const isSoon = plugged !== undefined && (!isCharged || (!isBoth && ms <= lateResetMs))
    this.#add(one, total + Math.max(0, value - before), isUnsure || isBoth ? 'unsure' : undefined, isSoon || undefined)
  }

  #add(
    { at, value, isLoose }: Said,
    total: number | undefined,
    mark: Mark | undefined = isLoose && 'loose',
    renews: true | undefined = mark === 'old' || undefined,
  ): void {
    const { last } = this.series
    const plain: Entry = total === undefined ? [at, value] : [at, value, total]
    const entry: Entry = mark === undefined ? plain : [at, value, total ?? null, mark]
    this.entries.push(entry)
    const isTurned = mark === 'jump' || mark === 'reset'
    const isBack = total !== undefined && total === last?.[2] && !isTurned && Number(value) < Number(last[1])
    const largest: Entry = isBack ? [at, last[1], total] : plain
    const isLine = total !== undefined
    const sinceBase = isLine && isTurned ? 1 : (this.series.sinceBase ?? 0) + 1
    const isFew = sinceBase <= fewValues
    const base = isLine && isTurned ? last : isFew ? this.series.base : undefined
    const unsureAt = isLine && (mark === 'jump' || mark === 'unsure') ? at : this.series.unsureAt
    const since = base === undefined ? undefined : sinceBase
    this.series = { last: largest, isLoose, prior: isLine ? last : undefined, base, sinceBase: since, unsureAt, renews }
  }
}
