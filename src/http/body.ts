import type { Refusal } from './answers.ts'

/** A body as text, or the value that other code parsed from it. */
export type Body = { readonly text: string } | { readonly value: unknown }

interface ReadableRequest {
  readonly body: ReadableStream<Uint8Array<ArrayBuffer>> | null
  readonly bodyUsed: boolean
  text(): Promise<string>
}

interface BodyHeaders {
  readonly contentEncoding: string | null | undefined
  /** Left out for a chunked body, because some runtimes pass on a length that is wrong for it. */
  readonly contentLength: string | null | undefined
}

/** Reads the body of a request, at most `limitBytes` of it, before and after inflating. */
export async function readRequest(
  request: ReadableRequest,
  { contentEncoding, contentLength }: BodyHeaders,
  limitBytes: number,
): Promise<Body | Refusal> {
  const gzip = contentEncoding ? isGzip(contentEncoding) : false
  if (gzip === undefined) return { error: 'encoding_unsupported' }
  if (request.bodyUsed) return { error: 'body_consumed' }
  const declared = contentLength ? Number(contentLength) : Number.NaN
  if (declared > limitBytes) return tooLarge(limitBytes)
  try {
    // This is the fastest way to read. It stays within the limit, because the runtime ends a body at its declared length.
    if (!gzip && declared >= 0) {
      const text = await request.text()
      return text.length > limitBytes ? tooLarge(limitBytes) : { text }
    }
    return request.body === null ? { error: 'body_empty' } : await readChunks(chunksOf(request.body), gzip, limitBytes)
  } catch (error) {
    return { error: isUsed(error) ? 'body_consumed' : 'body_interrupted' }
  }
}

/** Reads a body that the host has already read: text, bytes, or a parsed value. */
export async function readGiven(
  body: unknown,
  contentEncoding: string | null | undefined,
  limitBytes: number,
): Promise<Body | Refusal> {
  if (body === undefined || body === null) return nothingGiven
  if (typeof body === 'string') {
    if (longerThan(body, limitBytes)) return tooLarge(limitBytes)
    return body.charCodeAt(0) === gzipMagic ? gzipAsText : { text: body }
  }
  const isBuffer = body instanceof ArrayBuffer
  if (!isBuffer && !ArrayBuffer.isView(body)) {
    // Body parsers of older hosts make an empty object of an empty body, and of one with a Content-Type that they do not know.
    const isNothing = typeof body === 'object' && !Array.isArray(body) && Object.keys(body).length === 0
    return isNothing ? nothingGiven : { value: body }
  }
  const gzip = isGzip(contentEncoding)
  if (gzip === undefined) return { error: 'encoding_unsupported' }
  if (body.byteLength > limitBytes) return tooLarge(limitBytes)
  const bytes = isBuffer ? new Uint8Array(body) : new Uint8Array(body.buffer, body.byteOffset, body.byteLength)
  // Some hosts inflate a body and leave its header unchanged. So the bytes decide.
  if (!gzip || bytes[0] !== gzipMagic) return { text: new TextDecoder().decode(bytes) }
  return readChunks(chunksOf(new Blob([Uint8Array.from(bytes)]).stream()), true, limitBytes)
}

/** The first byte of gzip. JSON never begins with it. */
const gzipMagic = 0x1f

const gzipAsText: Refusal = {
  error: 'body_gzip_broken',
  hint: 'The body is gzip that was read as text, which destroys it. Pass its bytes.',
}

const nothingGiven: Refusal = {
  error: 'body_empty',
  hint: 'There is no body. A body parser ignores a Content-Type that it does not know. Let it parse every type, or mount the receiver before it.',
}

/** Whether the host had already read the body underneath `Request`. Runtimes notice that only when they read. */
function isUsed(error: unknown): boolean {
  return error instanceof TypeError && /unusable|already|disturbed|locked/i.test(error.message)
}

/** Whether a body is gzip, by its Content-Encoding. `undefined` for an encoding that is not supported. */
export function isGzip(contentEncoding: string | null | undefined): boolean | undefined {
  const encoding = contentEncoding?.trim().toLowerCase()
  if (!encoding || encoding === 'identity') return false
  return encoding === 'gzip' || encoding === 'x-gzip' ? true : undefined
}

export interface Chunks {
  /** Resolves to `undefined` at the end. Rejects when the body is interrupted. */
  next(): Promise<Uint8Array<ArrayBuffer> | undefined>
  cancel(): void
}

/** Throws when the stream is locked. */
function chunksOf(stream: ReadableStream<Uint8Array<ArrayBuffer>>): Chunks {
  const reader = stream.getReader()
  return {
    next: async () => (await reader.read()).value,
    // Not awaited, because a sender that goes on sending must not delay the answer.
    cancel: () => void reader.cancel().catch(() => {}),
  }
}

/** Most places that look like the beginning of a gzip member are one: three bytes that do are in every second body of 8 MiB. */
const mostWrong = 20

/** An empty member ends with nine: the last byte of its content, its checksum and its size. */
const mostZerosOfMember = 9

/** Reads to the end or to the limit. The limit counts both the sent and the inflated bytes. */
export async function readChunks(sent: Chunks, gzip: boolean, limitBytes: number): Promise<Body | Refusal> {
  let problem: Refusal = { error: 'body_gzip_broken' }
  let sentBytes = 0
  const kept: Uint8Array<ArrayBuffer>[] = []
  const decoder = new TextDecoder()
  let text = ''
  let bytes = 0

  function checkSize(size: number): void {
    if (size <= limitBytes) return
    problem = tooLarge(limitBytes)
    throw new RangeError('The body is over the limit.')
  }
  async function next(): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const chunk = await sent.next().catch((error: unknown) => {
      problem = { error: 'body_interrupted' }
      throw error
    })
    checkSize((sentBytes += chunk?.byteLength ?? 0))
    if (gzip && chunk !== undefined) kept.push(chunk)
    return chunk
  }
  /** Adds to the text all of it, or nothing. */
  async function add(chunks: Chunks): Promise<void> {
    const read: Uint8Array<ArrayBuffer>[] = []
    let size = bytes
    try {
      for (let chunk = await chunks.next(); chunk !== undefined; chunk = await chunks.next()) {
        read.push(chunk)
        checkSize((size += chunk.byteLength))
      }
    } catch (error) {
      chunks.cancel()
      throw error
    }
    for (const chunk of read) text += decoder.decode(chunk, { stream: true })
    bytes = size
  }
  const isBroken = (): boolean => problem.error === 'body_gzip_broken'
  async function addMembers(): Promise<boolean> {
    while ((await next()) !== undefined);
    return inflateMembers(new Uint8Array(await new Blob(kept).arrayBuffer()), add, isBroken)
  }

  try {
    await add(gzip ? inflate(next) : { next, cancel: () => {} })
  } catch {
    if (!isBroken() || !(await addMembers().catch(() => false))) {
      sent.cancel()
      return problem
    }
  }
  return { text: text + decoder.decode() }
}

/**
 * Inflates several gzip members, as some relays send them, because some runtimes refuse everything behind the first. No standard reader says where a
 * member ends, so each place that looks like the beginning of one is tried: what is before it has to inflate as a whole. `add` rejects when it
 * does not, and `isBroken` is whether that was the reason. Resolves to whether all of the body was inflated.
 */
async function inflateMembers(
  body: Uint8Array<ArrayBuffer>,
  add: (chunks: Chunks) => Promise<void>,
  isBroken: () => boolean,
): Promise<boolean> {
  // Behind the last member, zeros are padding, as for gzip itself. Its own last bytes can be zeros too.
  const padded = body.findLastIndex((byte) => byte !== 0) + 1
  const mayEnd = (end: number): boolean =>
    end === body.length ||
    (end >= padded && end <= padded + mostZerosOfMember) ||
    (body[end] === gzipMagic && body[end + 1] === 0x8b && body[end + 2] === 8)
  let start = 0
  for (let end = 1, wrong = 0; end <= body.length && start < Math.max(padded, 1) && wrong < mostWrong; end += 1) {
    if (!mayEnd(end)) continue
    const member = [body.subarray(start, end)]
    try {
      await add(inflate(async () => member.pop()))
      start = end
    } catch {
      if (!isBroken()) return false
      wrong += 1
    }
  }
  return start > 0 && start >= padded
}

/** Some runtimes inflate a whole chunk at once, to a thousand times its size. So they get small chunks. */
const inflateBytes = 4096

function inflate(next: () => Promise<Uint8Array<ArrayBuffer> | undefined>): Chunks {
  let left: Uint8Array<ArrayBuffer> | undefined
  const pieces = new ReadableStream<Uint8Array<ArrayBuffer>>(
    {
      async pull(controller) {
        left ??= await next()
        if (left === undefined) return controller.close()
        controller.enqueue(left.subarray(0, inflateBytes))
        left = left.byteLength > inflateBytes ? left.subarray(inflateBytes) : undefined
      },
    },
    { highWaterMark: 0 },
  )
  return chunksOf(pieces.pipeThrough(new DecompressionStream('gzip')))
}

function longerThan(text: string, limitBytes: number): boolean {
  if (text.length > limitBytes) return true
  return text.length * 3 > limitBytes && new TextEncoder().encode(text).byteLength > limitBytes
}

export function tooLarge(limitBytes: number): Refusal {
  return {
    error: 'body_too_large',
    hint: `A body can have at most ${limitBytes} bytes after inflating. Raise \`limits.bodyBytes\` if yours are larger.`,
  }
}
