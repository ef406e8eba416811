import { longestMs } from './clock.ts'

const months = 'jan feb mar apr may jun jul aug sep oct nov dec'.split(' ')

/** The two forms with the day first, and the form of asctime. Each begins with the name of a day, which nothing else in `Retry-After` does. */
const dayFirst =
  /^[a-z]{3,9},? (?<day>\d{1,2})[ -](?<month>[a-z]{3})[ -](?<year>\d{2}|\d{4}) (?<time>\d\d:\d\d:\d\d)(?: (?:GMT|UTC?|Z|[+-]0000))?$/i
const asctime = /^[a-z]{3} (?<month>[a-z]{3}) +(?<day>\d{1,2}) (?<time>\d\d:\d\d:\d\d) (?<year>\d{4})$/i

/**
 * A date of HTTP in any of its three forms, in milliseconds since the epoch. `undefined`: not a date. All of them are GMT, also the one without a
 * zone, which `Date.parse` reads in the zone of the machine (RFC 9110, section 5.6.7).
 */
function readHttpDate(text: string, nowMs: number): number | undefined {
  const { day, month, year = '', time } = (dayFirst.exec(text) ?? asctime.exec(text))?.groups ?? {}
  const [hours = Number.NaN, minutes = 0, seconds = 0] = (time ?? '').split(':').map(Number)
  const dateIn = (fullYear: number): number =>
    Date.UTC(fullYear, months.indexOf(month?.toLowerCase() ?? ''), Number(day), hours, minutes, seconds)
  if (time === undefined || !months.includes(month?.toLowerCase() ?? '')) return undefined
  if (year.length === 4) return dateIn(Number(year))
  // Two digits that seem to be more than 50 years ahead are of the century before.
  const thisYear = new Date(nowMs).getUTCFullYear()
  const near = thisYear - (thisYear % 100) + Number(year)
  return dateIn(near > thisYear + 50 ? near - 100 : near)
}

/** Reads `Retry-After`, a number of seconds or a date of HTTP, as whole milliseconds from now that a timer can wait. Else `undefined`. */
export function readRetryAfter(header: string | null, nowMs: number): number | undefined {
  const text = header?.trim() ?? ''
  if (/^\d+(\.\d+)?$/.test(text)) return Math.min(longestMs, Math.ceil(Number(text) * 1000))
  const atMs = readHttpDate(text, nowMs)
  return atMs === undefined ? undefined : Math.min(longestMs, Math.max(0, atMs - nowMs))
}
