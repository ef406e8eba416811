import timingSafeEqual from 'timing-safe-equal'
import { FleethookError } from '../base/errors.ts'

/** The longest secret, in bytes. */
export const mostBytes = 1024

/** Texts are padded to at least this many bytes. Not more, because comparing is most of the cost of reading a header. */
const leastBytes = 128

// In bundles, the library uses a second file that accepts only Buffers. Without Buffers (Workers without Node's globals) it
// cannot work.
const { Buffer: HostBuffer }: typeof globalThis & { readonly Buffer?: { from(bytes: ArrayBuffer): Uint8Array } } =
  globalThis

const encoder = new TextEncoder()

/** A text padded with zeros to a window of fixed size, so that comparing takes the same time for every text. */
interface Window {
  readonly bytes: Uint8Array
  written: number
  fits: boolean
}

/** The time of a comparison shows only the size of the window: the power of two above the secret's length. */
function windowFor(secret: string): Window {
  let bytes = leastBytes
  while (bytes < secret.length) bytes *= 2
  const buffer = new ArrayBuffer(bytes)
  return { bytes: HostBuffer ? HostBuffer.from(buffer) : new Uint8Array(buffer), written: 0, fits: false }
}

function fill(window: Window, text: string): void {
  window.bytes.fill(0)
  const { read, written } = encoder.encodeInto(text, window.bytes)
  window.written = written
  window.fits = read === text.length
}

/** A secret that is ready to be compared. */
export interface Comparable {
  /** Whether `text` is the secret. The time does not depend on how much of it is right. */
  equals(text: string): boolean
}

/** Encodes a secret once. Throws `option_invalid` where the runtime cannot compare in constant time. */
export function comparable(secret: string): Comparable {
  const expected = windowFor(secret)
  fill(expected, secret)
  // Comparing is synchronous, so all requests can share one window.
  const offered = windowFor(secret)
  const equals = (text: string): boolean => {
    fill(offered, text)
    const same = timingSafeEqual(offered.bytes, expected.bytes)
    return same && offered.fits && offered.written === expected.written
  }
  try {
    equals('')
  } catch (cause) {
    throw new FleethookError(
      'option_invalid',
      // The hint is part of the message, because workerd prints nothing else of an error that stops a module.
      'This runtime cannot compare secrets in constant time, because it has no global Buffer: on Workers set compatibility_date to 2026-08-04 or later, or the compatibility flag nodejs_compat.',
      { cause },
    )
  }
  return { equals }
}
