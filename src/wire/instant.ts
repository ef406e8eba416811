const ZERO = 48
const NINE = 57

/** Two digits at `at`, or NaN. */
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

/** Milliseconds of a calendar date and time in UTC, or NaN when there is no such time. A leap second is the next second. */
export function instantOf(
  year: number,
  month: number,
  day: number,
  hour: number,
  minute: number,
  second: number,
): number {
  if (!(month >= 1 && month <= 12 && day >= 1 && day <= daysInMonth(year, month))) return Number.NaN
  if (!(hour <= 23 && minute <= 59 && second <= 60)) return Number.NaN
  return (((daysSinceEpoch(year, month, day) * 24 + hour) * 60 + minute) * 60 + second) * 1000
}

/** Milliseconds that the zone at `at` is ahead of UTC; no zone is UTC; NaN when it is no zone. */
function zoneMs(text: string, at: number): number {
  if (at === text.length) return 0
  const sign = text.charCodeAt(at)
  if (sign === 90 || sign === 122) return at + 1 === text.length ? 0 : Number.NaN // Z, z
  if (sign !== 43 && sign !== 45) return Number.NaN // +, -
  const hours = pair(text, at + 1)
  const rest = text.length - at - 3
  const colon = text.charCodeAt(at + 3) === 58
  if (rest !== 0 && rest !== (colon ? 3 : 2)) return Number.NaN
  const minutes = rest === 0 ? 0 : pair(text, at + (colon ? 4 : 3))
  if (!(hours <= 23 && minutes <= 59)) return Number.NaN
  return (hours * 60 + minutes) * (sign === 43 ? 60_000 : -60_000)
}

/**
 * Reads an ISO 8601 time to the millisecond; NaN when it is none. Any number of fraction digits; a zone, or none for UTC.
 *
 * By hand, because `Date.parse` differs between engines beyond three fraction digits, and reads a time without a zone in
 * the zone of the machine.
 */
export function readInstant(text: string): number {
  const century = pair(text, 0)
  const separator = text.charCodeAt(10)
  if (text.charCodeAt(4) !== 45 || text.charCodeAt(7) !== 45) return Number.NaN
  if (separator !== 84 && separator !== 116 && separator !== 32) return Number.NaN // T, t, blank
  if (text.charCodeAt(13) !== 58 || text.charCodeAt(16) !== 58) return Number.NaN
  let at = 19
  let fractionMs = 0
  if (text.charCodeAt(19) === 46) {
    let weight = 100
    for (at = 20; ; at++) {
      const code = text.charCodeAt(at)
      if (!(code >= ZERO && code <= NINE)) break
      fractionMs += (code - ZERO) * weight
      weight = weight > 1 ? weight / 10 : 0
    }
    if (at === 20) return Number.NaN
  }
  const wholeMs = instantOf(
    century * 100 + pair(text, 2),
    pair(text, 5),
    pair(text, 8),
    pair(text, 11),
    pair(text, 14),
    pair(text, 17),
  )
  return wholeMs + fractionMs - zoneMs(text, at)
}

const months = 'JanFebMarAprMayJunJulAugSepOctNovDec'
const clockText = /^[A-Z][a-z]{2} ([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})$/

/** Reads `Wed Dec  4 00:15:00 2024` as UTC, to the millisecond; NaN when it is not that. */
export function readClockText(text: string): number {
  const [, month = '', day, hour, minute, second, year] = clockText.exec(text) ?? []
  const index = months.indexOf(month)
  if (month === '' || index % 3 !== 0) return Number.NaN
  return instantOf(Number(year), index / 3 + 1, Number(day), Number(hour), Number(minute), Number(second))
}
