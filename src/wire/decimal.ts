/** All powers of ten by which a mantissa of fifteen digits can be divided exactly. */
const powers: readonly number[] = [1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15]

const decimalText = /^[+-]?(?:\d+(\.\d*)?|(\.\d+))(e[+-]?\d+)?$/i

function readAnyDecimal(text: string): number {
  const match = decimalText.exec(text)
  if (match === null) return Number.NaN
  const value = Number(text)
  const whole = match[1] === undefined && match[2] === undefined && match[3] === undefined
  // An integer that a double cannot hold would be silently another number.
  return (whole ? Number.isSafeInteger(value) : Number.isFinite(value)) ? value + 0 : Number.NaN
}

/**
 * Reads decimal text such as `-81.488`, `42` or `1e-7`; NaN when it is anything else. Hexadecimal, `Infinity` and the
 * empty text, which `Number` would take, are not decimal text.
 *
 * Up to fifteen digits are read here, to the same number as `Number` reads in three times the time: mantissa and power of
 * ten are exact, so that their quotient is rounded once.
 */
export function readDecimal(text: string): number {
  const end = text.length
  let at = 0
  const negative = text.charCodeAt(0) === 45
  if (negative) at = 1
  let mantissa = 0
  let digits = 0
  let point = -1
  for (; at < end; at++) {
    const digit = text.charCodeAt(at) - 48
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
  // Minus zero is a spelling of zero.
  return negative ? 0 - value : value
}
