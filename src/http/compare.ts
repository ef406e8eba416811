import timingSafeEqual from 'timing-safe-equal'
import { FleethookError } from '../base/errors.ts'

/** Longer secrets are refused. */
export const mostBytes = 1024

/** What is compared is padded to at least this many bytes: comparing is most of what reading a header costs. */
const leastBytes = 128

// For bundles the library has a second file that takes nothing but Buffers. Where there are none (Workers without
// Node's globals) it cannot work at all.
const { Buffer: HostBuffer }: typeof globalThis & { readonly Buffer?: { from(bytes: ArrayBuffer): Uint8Array } } =
  globalThis

const encoder = new TextEncoder()

/** A text in a window of the secret's size, padded with zeros, so that comparing it takes as long as comparing any other. */
interface Window {
  readonly bytes: Uint8Array
  written: number
  fits: boolean
}

/** The time tells the size of the window, and so which power of two is above the secret's length; nothing else. */
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

/** A secret made ready to be compared. */
export interface Comparable {
  /** Whether `text` is the secret, in a time that does not depend on how much of it is right. */
  equals(text: string): boolean
}

/** Encodes a secret once. Throws `option_invalid` where the runtime cannot compare in constant time. */
export function comparable(secret: string): Comparable {
  const expected = windowFor(secret)
  fill(expected, secret)
  // Comparing is synchronous, so one window for what is compared serves every request.
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
      'This runtime cannot compare secrets in constant time: there is no global Buffer.',
      {
        hint: 'On Workers set compatibility_date to 2026-08-04 or later, or the compatibility flag nodejs_compat.',
        cause,
      },
    )
  }
  return { equals }
}
