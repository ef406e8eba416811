import { ServiceError } from './service-error.ts'

/**
 * One segment of a path. Refuses what would lead to another path, so that no VIN that came from outside can: the empty text,
 * and everything but letters, digits, `_` and `-`.
 */
export function segment(what: string, value: string | number): string {
  const text = String(value)
  if (/^[\w-]+$/.test(text)) return text
  throw new ServiceError('invalid_request', `${what} is ${JSON.stringify(text.slice(0, 40))}, which is none.`, {
    hint: 'It consists of letters, digits, "_" and "-".',
  })
}

/** Several segments below a product: `command/charge_start`, `release_notes`. */
export function segments(what: string, path: string): string {
  return path
    .replace(/^\//, '')
    .split('/')
    .map((part) => segment(what, part))
    .join('/')
}
