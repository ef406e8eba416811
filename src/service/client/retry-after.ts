/**
 * How long a `Retry-After` header asks to wait, in milliseconds: a number of seconds, or a date of HTTP. `undefined` for
 * none, and for what is neither.
 */
export function readRetryAfter(header: string | null, nowMs: number): number | undefined {
  const text = header?.trim() ?? ''
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text) * 1000
  // Engines read far more than HTTP's dates; those begin with the name of a day.
  if (!/^(mon|tue|wed|thu|fri|sat|sun)/i.test(text)) return undefined
  const atMs = Date.parse(text)
  return Number.isNaN(atMs) ? undefined : Math.max(0, atMs - nowMs)
}
