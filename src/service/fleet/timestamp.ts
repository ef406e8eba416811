import { whole, type Random } from './random.ts'

/** How many digits a vehicle's firmware writes after the second. */
export type FractionDigits = 0 | 3 | 6 | 9

/** ISO 8601 UTC with as many digits after the second as the firmware writes. */
export function timestamp(ms: number, digits: FractionDigits, random: Random): string {
  const iso = new Date(ms).toISOString()
  if (digits === 0) return `${iso.slice(0, 19)}Z`
  if (digits === 3) return iso
  const belowMs = digits - 3
  const fraction = String(whole(random, 0, 10 ** belowMs - 1)).padStart(belowMs, '0')
  return `${iso.slice(0, 23)}${fraction}Z`
}
