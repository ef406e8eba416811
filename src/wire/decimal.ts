/**
 * Reads decimal text such as `-81.488`, `42` or `1e-7`; NaN when it is anything else. Hexadecimal, `Infinity` and the
 * empty text, which `Number` would take, are not decimal text.
 */
export function readDecimal(text: string): number {
  let digits = 0
  let whole = true
  let at = 0
  let end = text.length
  while (at < end && text.charCodeAt(at) <= 32) at++
  while (end > at && text.charCodeAt(end - 1) <= 32) end--
  const first = text.charCodeAt(at)
  if (first === 45 || first === 43) at++ // -, +
  for (; at < end; at++) {
    const code = text.charCodeAt(at)
    if (code >= 48 && code <= 57) digits++
    else if (code === 46 && whole) whole = false
    else break
  }
  if (digits === 0) return Number.NaN
  if (at < end) {
    if ((text.charCodeAt(at) | 32) !== 101) return Number.NaN // e, E
    whole = false
    at++
    const sign = text.charCodeAt(at)
    if (sign === 45 || sign === 43) at++
    if (at >= end) return Number.NaN
    for (; at < end; at++) {
      const code = text.charCodeAt(at)
      if (!(code >= 48 && code <= 57)) return Number.NaN
    }
  }
  const value = Number(text)
  // An integer that a double cannot hold would be silently another number.
  if (whole ? !Number.isSafeInteger(value) : !Number.isFinite(value)) return Number.NaN
  // Minus zero is a spelling of zero.
  return value + 0
}
