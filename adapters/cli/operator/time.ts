import { InvalidArgumentError } from 'commander'

const units: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** A time as an operator writes it: ISO 8601, in UTC when no zone is said, or so long ago: `90s`, `15m`, `2h`, `3d`. */
export function time(text: string, nowMs: number = Date.now()): Date {
  const [, count, unit = ''] = /^(\d+)([smhd])$/.exec(text) ?? []
  if (count !== undefined) return new Date(nowMs - Number(count) * (units[unit] ?? 0))
  const isIso = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})?)?$/.test(text)
  const found = new Date(isIso && text.includes('T') && !/(Z|[+-]\d{2}:\d{2})$/.test(text) ? `${text}Z` : text)
  if (isIso && !Number.isNaN(found.getTime())) return found
  throw new InvalidArgumentError('It must be a time as 2026-05-01T08:00Z, or so long ago as 90s, 15m, 2h or 3d.')
}
