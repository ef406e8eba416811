const ZERO = 48
const DAY_MS = 86_400_000

/** Two digits at `at`; NaN when they are none. */
function pair(text: string, at: number): number {
  const tens = text.charCodeAt(at) - ZERO
  const ones = text.charCodeAt(at + 1) - ZERO
  return tens >= 0 && tens <= 9 && ones >= 0 && ones <= 9 ? tens * 10 + ones : Number.NaN
}

/** Days since 1970-01-01 of a date of the Gregorian calendar (Howard Hinnant's `days_from_civil`). */
function daysSinceEpoch(year: number, month: number, day: number): number {
  const y = month <= 2 ? year - 1 : year
  const era = Math.floor(y / 400)
  const yearOfEra = y - era * 400
  const dayOfYear = Math.floor((153 * (month > 2 ? month - 3 : month + 9) + 2) / 5) + day - 1
  const dayOfEra = yearOfEra * 365 + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100) + dayOfYear
  return era * 146_097 + dayOfEra - 719_468
}

function daysInMonth(year: number, month: number): number {
  if (month === 2) return year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0) ? 29 : 28
  return month === 4 || month === 6 || month === 9 || month === 11 ? 30 : 31
}

let knownDate = -1
let knownDays = 0

/** Days since 1970-01-01 of a date such as 20240224, remembered for the last one; NaN when there is no such date. */
function daysOf(date: number): number {
  if (date === knownDate) return knownDays
  const year = Math.floor(date / 10_000)
  const month = Math.floor(date / 100) % 100
  const day = date % 100
  if (month < 1 || month > 12 || day < 1 || day > daysInMonth(year, month)) return Number.NaN
  knownDays = daysSinceEpoch(year, month, day)
  knownDate = date
  return knownDays
}

/** Milliseconds of a time of day such as 45844; NaN when there is none. A leap second is the second after it. */
function clockMs(clock: number): number {
  const hour = Math.floor(clock / 10_000)
  const minute = Math.floor(clock / 100) % 100
  const second = clock % 100
  return hour > 23 || minute > 59 || second > 60 ? Number.NaN : ((hour * 60 + minute) * 60 + second) * 1000
}

/** Milliseconds that the zone at `at` is ahead of UTC; no zone is UTC; NaN when it is no zone. */
function zoneMs(text: string, at: number): number {
  const rest = text.length - at
  if (rest === 0) return 0
  const sign = text.charCodeAt(at)
  if (sign === 90 || sign === 122) return rest === 1 ? 0 : Number.NaN // Z, z
  if (sign !== 43 && sign !== 45) return Number.NaN // +, -
  const colon = text.charCodeAt(at + 3) === 58
  if (rest !== 3 && rest !== (colon ? 6 : 5)) return Number.NaN
  const hours = pair(text, at + 1)
  const minutes = rest === 3 ? 0 : pair(text, at + (colon ? 4 : 3))
  if (!(hours <= 23 && minutes <= 59)) return Number.NaN
  return (hours * 60 + minutes) * (sign === 43 ? 60_000 : -60_000)
}

/** The calendar comes round after so many years, with this many days. */
const cycleYears = 400
const cycleDays = 146_097

/** The last moment that a `Date` can hold, and before 1970 the first. */
const lastMs = 8.64e15

/** A time whose year has a sign and six digits, as a `Date` writes those that four do not hold: what is written can be read. */
function readFarInstant(text: string): number {
  const year = Number(/^[+-]\d{6}(?=-)/.exec(text)?.[0])
  if (!(year < 0 || year > 9999)) return Number.NaN
  const cycles = Math.floor((year - 2000) / cycleYears)
  const ms = readInstant(`${year - cycles * cycleYears}${text.slice(7)}`) + cycles * cycleDays * DAY_MS
  return Math.abs(ms) <= lastMs ? ms : Number.NaN
}

/**
 * Reads an ISO 8601 time to the millisecond; NaN when it is none. Any number of fraction digits; a zone, or none for UTC.
 *
 * By hand, because `Date.parse` differs between engines beyond three fraction digits, and reads a time without a zone in
 * the zone of the machine. In loops over whole numbers and without a function for a digit, because every message is read
 * here, and engines do not inline small functions without end.
 */
export function readInstant(text: string): number {
  if (text.length < 19) return Number.NaN
  const first = text.charCodeAt(0)
  if (first === 43 || first === 45) return readFarInstant(text) // +, -
  const separator = text.charCodeAt(10)
  if (separator !== 84 && separator !== 116 && separator !== 32) return Number.NaN // T, t, blank
  let date = 0
  for (let at = 0; at < 10; at++) {
    const value = text.charCodeAt(at) - ZERO
    if (value >= 0 && value <= 9 && at !== 4 && at !== 7) date = date * 10 + value
    else if (value !== -3 || (at !== 4 && at !== 7)) return Number.NaN // -
  }
  let clock = 0
  for (let at = 11; at < 19; at++) {
    const value = text.charCodeAt(at) - ZERO
    if (value >= 0 && value <= 9 && at !== 13 && at !== 16) clock = clock * 10 + value
    else if (value !== 10 || (at !== 13 && at !== 16)) return Number.NaN // :
  }
  let fractionMs = 0
  let at = 19
  if (at < text.length && text.charCodeAt(19) === 46) {
    for (at = 20; at < text.length; at++) {
      const value = text.charCodeAt(at) - ZERO
      if (value < 0 || value > 9) break
      if (at < 23) fractionMs += at === 20 ? value * 100 : at === 21 ? value * 10 : value
    }
    if (at === 20) return Number.NaN
  }
  return daysOf(date) * DAY_MS + clockMs(clock) + fractionMs - zoneMs(text, at)
}

const months = 'JanFebMarAprMayJunJulAugSepOctNovDec'
const clockText = /^[A-Z][a-z]{2} ([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})$/

/** Reads `Wed Dec  4 00:15:00 2024` as UTC, to the millisecond; NaN when it is not that. */
export function readClockText(text: string): number {
  const [, month = '', day, hour, minute, second, year] = clockText.exec(text) ?? []
  const index = months.indexOf(month)
  if (month === '' || index % 3 !== 0) return Number.NaN
  const date = (Number(year) * 100 + index / 3 + 1) * 100 + Number(day)
  return daysOf(date) * DAY_MS + clockMs((Number(hour) * 100 + Number(minute)) * 100 + Number(second))
}
