import { type Clock, systemClock } from './clock.ts'

/** The most of a body of another side that is read, in bytes, and the time for it, in milliseconds. */
export interface ReadLimits {
  readonly mostBytes: number
  readonly mostMs: number
}

/**
 * Reads a body of another side within these limits, because that side decides neither how much memory nor how much time it costs. `undefined`: it
 * is larger, or did not end in time, and its connection is closed. Rejects when the connection breaks.
 */
export async function readWithin(
  { body }: Pick<Response, 'body'>,
  { mostBytes, mostMs }: ReadLimits,
  clock: Clock = systemClock,
): Promise<Uint8Array<ArrayBuffer> | undefined> {
  if (body === null) return new Uint8Array()
  const reader = body.getReader()
  const chunks: Uint8Array<ArrayBuffer>[] = []
  let bytes = 0
  let isCut = false
  const cut = (): void => {
    isCut = true
    // The other side may never confirm the cancellation, so nothing waits for it.
    reader.cancel().catch(() => {})
  }
  const timer = mostMs === Infinity ? undefined : clock.after(mostMs, cut)
  try {
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      bytes += read.value.byteLength
      if (bytes > mostBytes) cut()
      else chunks.push(read.value)
    }
  } finally {
    timer?.cancel()
  }
  return isCut ? undefined : new Uint8Array(await new Blob(chunks).arrayBuffer())
}
