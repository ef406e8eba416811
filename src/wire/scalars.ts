const ZERO = 48
const DAY_MS = 86_400_000

const decimalText = /^[+-]?(?:\d+(\.\d*)?|(\.\d+))(e[+-]?\d+)?$/i

function readAnyDecimal(text: string): number {
  const match = decimalText.exec(text)
  if (match === null) return Number.NaN
  const value = Number(text)
  const isWhole = match[1] === undefined && match[2] === undefined && match[3] === undefined
  // A whole number that a double cannot hold would silently become a different number.
  return (isWhole ? Number.isSafeInteger(value) : Number.isFinite(value)) ? value + 0 : Number.NaN
}

/** Powers of ten. A mantissa of up to fifteen digits divided by one of them is rounded once, so the result is exact. */
const powers: readonly number[] = [1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15]

/** Reads decimal text such as `-81.488` or `1e-7`, else NaN. `Number` is slower, and accepts hexadecimal and blanks. */
export function readDecimal(text: string): number {
  const end = text.length
  let at = 0
  const isNegative = text.charCodeAt(0) === 45
  if (isNegative) at = 1
  let mantissa = 0
  let digits = 0
  let point = -1
  for (; at < end; at++) {
    const digit = text.charCodeAt(at) - ZERO
    if (digit >= 0 && digit <= 9) {
      mantissa = mantissa * 10 + digit
      digits++
    } else if (digit === -2 && point < 0) {
      point = digits
    } else {
      return readAnyDecimal(text.trim())
    }
  }
  if (digits === 0 || digits > 15) return readAnyDecimal(text)
  const value = point < 0 ? mantissa : mantissa / (powers[digits - point] ?? 1)
  // Minus zero is read as zero.
  return isNegative ? 0 - value : value
}

/** The number that the two digits at `at` write; NaN when they are not digits. */
function pair(text: string, at: number): number {
  const tens = text.charCodeAt(at) - ZERO
  const ones = text.charCodeAt(at + 1) - ZERO
  return tens >= 0 && tens <= 9 && ones >= 0 && ones <= 9 ? tens * 10 + ones : Number.NaN
}

/** Days from 1970-01-01 to a date of the Gregorian calendar (Howard Hinnant's `days_from_civil`). */
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

/** Days from 1970-01-01 to a date such as 20240224; NaN when there is no such date. */
function daysOf(date: number): number {
  const year = Math.floor(date / 10_000)
  const month = Math.floor(date / 100) % 100
  const day = date % 100
  if (month < 1 || month > 12 || day < 1 || day > daysInMonth(year, month)) return Number.NaN
  return daysSinceEpoch(year, month, day)
}

/** Milliseconds from midnight to a time of day such as 45844; NaN when there is no such time. Reads a leap second as the next second. */
function clockMs(clock: number): number {
  const hour = Math.floor(clock / 10_000)
  const minute = Math.floor(clock / 100) % 100
  const second = clock % 100
  return hour > 23 || minute > 59 || second > 60 ? Number.NaN : ((hour * 60 + minute) * 60 + second) * 1000
}

/** Milliseconds by which the zone at `at` is ahead of UTC: 0 without a zone, NaN when the text there is not a zone. */
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

/** The calendar repeats after 400 years. */
const cycleYears = 400
const cycleDays = 146_097

/** The first and last moments that a `Date` can hold are this many milliseconds from 1970. */
export const lastDateMs = 8.64e15

/** Reads a time whose year has a sign and six digits. `Date` writes years that do not fit four digits like this. */
function readFarInstant(text: string): number {
  const year = Number(/^[+-]\d{6}(?=-)/.exec(text)?.[0])
  if (!(year < 0 || year > 9999)) return Number.NaN
  const cycles = Math.floor((year - 2000) / cycleYears)
  const ms = readInstant(`${year - cycles * cycleYears}${text.slice(7)}`) + cycles * cycleDays * DAY_MS
  return Math.abs(ms) <= lastDateMs ? ms : Number.NaN
}

/**
 * Reads an ISO 8601 time to the millisecond, UTC without a zone; NaN when the text is not one. `Date.parse` differs
 * between engines and reads the zone of the machine. The loops call no function for a digit: every message is read
 * here, and engines inline only so much.
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
  const isUtc = at === text.length - 1 && text.charCodeAt(at) === 90 // Z
  const days = daysOf(date)
  return days * DAY_MS + clockMs(clock) + fractionMs - (isUtc ? 0 : zoneMs(text, at))
}

/**
 * Reads a number as a time, to the millisecond: seconds, milliseconds, microseconds or nanoseconds, by its size. Each covers the years from
 * 1973 to 5138. Finer digits are cut off, as in a text, so that both have the same id. NaN: not a time.
 */
function readEpoch(time: number): number {
  const ms =
    time >= 1e17
      ? Math.floor(time / 1e6)
      : time >= 1e14
        ? Math.floor(time / 1e3)
        : Math.round(time >= 1e11 ? time : time * 1e3)
  return Math.abs(ms) <= lastDateMs ? ms + 0 : Number.NaN
}

/**
 * Reads any time of the wire to the millisecond: an ISO 8601 text, UTC without a zone, or a number, also as text. NaN: not a time. A
 * number need not be exact, because nanoseconds do not fit into a double.
 */
export function readTime(sent: unknown): number {
  if (typeof sent === 'number') return readEpoch(sent)
  if (typeof sent !== 'string') return Number.NaN
  const text = sent.trim()
  return decimalText.test(text) ? readEpoch(Number(text)) : readInstant(text)
}

/** Whether a time was sent, and by a clock that was set: a clock that was never set counts from 1970. */
export function isTimeSet(ms: number): boolean {
  return ms < 0 || ms >= 365 * DAY_MS
}

/** An empty time is written as 1970, or as the year 1. */
export function isEmptyTime(ms: number): boolean {
  return ms === 0 || ms === -62_135_596_800_000
}

const months = 'JanFebMarAprMayJunJulAugSepOctNovDec'
const clockText = /^[A-Z][a-z]{2} ([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})$/

/** Reads a time such as `Wed Dec  4 00:15:00 2024` as UTC, to the millisecond; NaN when the text is not one. */
export function readClockText(text: string): number {
  const [, month = '', day, hour, minute, second, year] = clockText.exec(text) ?? []
  const index = months.indexOf(month)
  if (month === '' || index % 3 !== 0) return Number.NaN
  const date = (Number(year) * 100 + index / 3 + 1) * 100 + Number(day)
  return daysOf(date) * DAY_MS + clockMs((Number(hour) * 100 + Number(minute)) * 100 + Number(second))
}

const MINUTE_MS = 60_000

const seconds: readonly string[] = /* @__PURE__ */ Array.from({ length: 60 }, (_, n) => String(n).padStart(2, '0'))
const milliseconds: readonly string[] = /* @__PURE__ */ Array.from(
  { length: 1000 },
  (_, n) => `.${String(n).padStart(3, '0')}Z`,
)

let knownMinute = Number.NaN
let knownText = ''

/** `2024-02-24T04:58:`. Remembers the last minute, because most messages are from the same minute as the one before. */
function minuteText(minute: number): string {
  if (minute !== knownMinute) {
    knownText = new Date(minute * MINUTE_MS).toISOString().slice(0, -7)
    knownMinute = minute
  }
  return knownText
}

/** The same text as `toISOString`, in a tenth of the time, which would be most of the cost of a message. */
export function isoText(ms: number): string {
  const minute = Math.floor(ms / MINUTE_MS)
  const rest = ms - minute * MINUTE_MS
  const second = Math.floor(rest / 1000)
  return `${minuteText(minute)}${seconds[second]}${milliseconds[rest - second * 1000]}`
}
