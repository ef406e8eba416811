import type { FieldValues } from 'fleethook'
import { numbers } from './episodes-model.ts'

/** Random histories of one vehicle: what was true comes first, and then it is disturbed. Seconds, miles and kWh. */

/** A message: when it was sent by the vehicle's clock, and how late it arrives. */
export interface Sent {
  readonly second: number
  readonly data: FieldValues
  readonly late: number
  /** What the vehicle said is not true. */
  readonly isOdd?: true
}

/** A charge as it was. */
export interface TrueCharge {
  readonly start: number
  readonly end: number
  /** What the socket gave with AC, or the battery got with DC. */
  readonly kwh: number
  /** kWh in a second. */
  readonly pace: number
}

export interface TrueHistory {
  readonly messages: readonly Sent[]
  readonly charges: readonly TrueCharge[]
  /** What an odometer says at a time. It was replaced: those of the time since say less. */
  readonly milesAt: (second: number) => number
  readonly replacedAt: number | undefined
}

export interface Disturbed {
  /** Part of the values that are odd. */
  readonly odd?: number
  readonly nulls?: number
  readonly twice?: number
  /** Part of the messages that are late, and by how much at most. */
  readonly late?: readonly [part: number, seconds: number]
  /** How likely a hour is in which nothing arrives. */
  readonly holes?: number
  readonly replaced?: number
}

interface Leg {
  readonly from: number
  readonly to: number
  readonly miles: number
}

class Life {
  readonly messages: Sent[] = []
  readonly charges: TrueCharge[] = []
  readonly legs: Leg[] = []
  readonly #random: () => number
  #now = 0
  #miles: number
  #energy = 50
  #ac: number
  #dc: number

  constructor(random: () => number) {
    this.#random = random
    this.#miles = this.between(100, 90_000)
    this.#ac = this.between(0, 25)
    this.#dc = this.#ac * 0.94
  }

  between(least: number, most: number): number {
    return least + this.#random() * (most - least)
  }

  is(part: number): boolean {
    return this.#random() < part
  }

  get miles(): number {
    return this.#miles
  }

  say(second: number, data: FieldValues): void {
    this.messages.push({ second: Math.round(second * 1_000) / 1_000, data, late: 0 })
  }

  park(seconds: number): void {
    this.#now += seconds
  }

  wake(): void {
    const now = this.#now
    this.say(now, { Gear: 'P' })
    this.say(now + 1, { Odometer: round(this.#miles) })
    this.say(now + 2, { EnergyRemaining: round(this.#energy) })
    this.say(now + 3, { DetailedChargeState: 'Disconnected' })
    if (this.is(0.5)) this.say(now + 4, { ACChargingEnergyIn: round(this.#ac), DCChargingEnergyIn: round(this.#dc) })
    this.#now += 10
  }

  drive(): void {
    const start = this.#now
    const end = start + this.between(240, 2_400)
    const pace = this.between(0.004, 0.02)
    this.say(start, { Gear: this.is(0.2) ? 'R' : 'D' })
    const from = this.#miles
    for (let at = start + this.between(1, 20); at < end; at += this.between(15, 60)) {
      this.#energy -= 0.05
      this.say(at, { Odometer: round(from + pace * (at - start)) })
      if (this.is(0.4)) this.say(at + 1, { EnergyRemaining: round(this.#energy) })
    }
    this.#miles = from + pace * (end - start)
    this.legs.push({ from: start, to: end, miles: this.#miles - from })
    this.say(end, { Gear: 'P' })
    if (this.is(0.9)) this.say(end + this.between(0.1, 60), { Odometer: round(this.#miles) })
    this.#now = end + 130
  }

  charge(): void {
    const isDc = this.is(0.35)
    const start = this.#now
    const end = start + (isDc ? this.between(600, 2_400) : this.between(1_200, 14_000))
    const pace = (isDc ? this.between(40, 150) : this.between(2, 11)) / 3_600
    // The counters begin again at the plug, late, or go on.
    const [oldAc, oldDc] = [this.#ac, this.#dc]
    const goesOn = this.is(0.1) && this.#ac > 5
    const carries = !goesOn && this.is(0.2) ? this.between(0.05, 20) : 0
    const [ac, dc] = goesOn ? [oldAc, oldDc] : [0, !isDc && this.is(0.1) ? this.between(0, 0.4) : 0]
    this.say(start, { DetailedChargeState: 'Starting' })
    if (this.is(0.3) || carries > 0)
      this.say(start + 0.01, { ACChargingEnergyIn: round(oldAc), DCChargingEnergyIn: round(oldDc) })
    this.say(start + 5, { DetailedChargeState: 'Charging' })
    const step = isDc ? 20 : 60
    for (let at = start + Math.max(6, carries); at < end; at += this.between(step / 2, step * 1.5)) {
      const grown = pace * (at - start)
      if (!isDc || this.is(0.1)) this.say(at, { ACChargingEnergyIn: round(isDc ? ac : ac + grown) })
      this.say(at + 1, { DCChargingEnergyIn: round(dc + grown * (isDc ? 1 : 0.94)) })
    }
    const all = pace * (end - start)
    this.#ac = ac + (isDc ? 0 : all)
    this.#dc = dc + all * (isDc ? 1 : 0.94)
    this.#energy += all * 0.94
    this.say(end, { DetailedChargeState: 'Complete' })
    this.say(end + this.between(1, 40), { DCChargingEnergyIn: round(this.#dc) })
    if (!isDc) this.say(end + this.between(1, 40), { ACChargingEnergyIn: round(this.#ac) })
    this.charges.push({ start, end, kwh: all, pace })
    this.say(end + 100, { DetailedChargeState: 'Disconnected' })
    this.#now = end + 130
  }
}

const round = (value: number): number => Math.round(value * 100) / 100

/** One vehicle over a day or two. */
export function historyOf(seed: number, disturbed: Disturbed): TrueHistory {
  const random = numbers(seed)
  const life = new Life(random)
  const first = life.miles
  for (let count = 2 + Math.floor(random() * 4); count > 0; count -= 1) {
    life.wake()
    if (random() < 0.5) life.drive()
    else life.charge()
    life.park(life.between(300, 20_000))
  }
  life.wake()
  const milesAt = (second: number): number =>
    life.legs.reduce(
      (sum, { from, to, miles }) => sum + miles * Math.min(1, Math.max(0, (second - from) / (to - from))),
      first,
    )
  const isReplaced = random() < (disturbed.replaced ?? 0)
  const replacedAt = isReplaced ? (life.messages.at(-1)?.second ?? 0) * random() : undefined
  // The new one begins at 12 miles.
  const offset = replacedAt === undefined ? 0 : milesAt(replacedAt) - 12
  return { messages: disturb(life, random, disturbed, replacedAt, offset), charges: life.charges, milesAt, replacedAt }
}

function disturb(
  { messages }: Life,
  random: () => number,
  how: Disturbed,
  replacedAt = Infinity,
  offset = 0,
): readonly Sent[] {
  const { odd = 0, nulls = 0, twice = 0, late: [part, seconds] = [0, 0], holes = 0 } = how
  const last = messages.at(-1)?.second ?? 0
  const silent: (readonly [number, number])[] = []
  for (let at = 0; at < last; at += 3_600) {
    const from = at + random() * 3_600
    if (random() < holes) silent.push([from, from + 60 + random() * 7_000])
  }
  const all: Sent[] = []
  for (const one of messages) {
    if (silent.some(([from, to]) => one.second >= from && one.second < to)) continue
    const late = random() < part ? random() * seconds : random() * (part > 0 ? 2 : 0)
    const data: FieldValues = { ...one.data }
    const miles = data.Odometer
    if (miles != null && one.second > replacedAt) Object.assign(data, { Odometer: round(miles - offset) })
    // The first value of all is the one that the others are compared with.
    const isOdd = random() < odd && one.second > 10 && makeOdd(data, random)
    all.push(isOdd ? { ...one, data, late, isOdd } : { ...one, data, late })
    if (random() < twice) all.push({ ...one, data, late: late + random() * 60 })
    if (random() < nulls) all.push({ second: one.second + 0.5, data: nullsOf(data), late })
  }
  return all
}

/** One of the numbers is odd. Only those of counters. */
function makeOdd(data: FieldValues, random: () => number): true | false {
  const turn = Math.floor(random() * 4)
  const odd = (value: number): number => [0, 429_496, value * 2 + 3, -5][turn] ?? 0
  for (const field of ['Odometer', 'ACChargingEnergyIn', 'DCChargingEnergyIn'] as const) {
    const value = data[field]
    if (typeof value !== 'number') continue
    Object.assign(data, { [field]: odd(value) })
    return true
  }
  return false
}

const nullsOf = (data: FieldValues): FieldValues => Object.fromEntries(Object.keys(data).map((field) => [field, null]))
