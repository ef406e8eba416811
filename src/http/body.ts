import type { Refusal } from './answers.ts'

/** A body that was read whole, or a value that somebody else parsed out of it. */
export type Body = { readonly text: string } | { readonly value: unknown }

/** What a body can be read from: a `Request`, or what Hono makes of one. */
export interface ReadableRequest {
  readonly body: ReadableStream<Uint8Array<ArrayBuffer>> | null
  readonly bodyUsed: boolean
  text(): Promise<string>
}

/** The headers that say how to read a body. */
export interface BodyHeaders {
  readonly contentEncoding: string | null | undefined
  /** Left out for a chunked body: some runtimes pass on a length that such a body does not keep to. */
  readonly contentLength: string | null | undefined
}

/** Whether a result is a refusal and not a body. */
export const isRefusal = (result: Body | Refusal): result is Refusal => 'error' in result

/** Reads the body of a request, inflating it if need be, and never more than `limitBytes` of it. */
export async function readRequest(
  request: ReadableRequest,
  { contentEncoding, contentLength }: BodyHeaders,
  limitBytes: number,
): Promise<Body | Refusal> {
  const gzip = isGzip(contentEncoding)
  if (gzip === undefined) return { error: 'encoding_unsupported' }
  if (request.bodyUsed) return { error: 'body_consumed' }
  const declared = contentLength ? Number(contentLength) : Number.NaN
  if (declared > limitBytes) return tooLarge(limitBytes)
  try {
    // The runtime holds a body to its declared length, so this cannot grow beyond the limit, and it is the fast way.
    if (!gzip && declared >= 0) {
      const text = await request.text()
      return text.length > limitBytes ? tooLarge(limitBytes) : filled(text)
    }
    return request.body === null ? { error: 'body_empty' } : await readStream(request.body, gzip, limitBytes)
  } catch (error) {
    return { error: isUsed(error) ? 'body_consumed' : 'body_interrupted' }
  }
}

/** Takes a body that the host has read: text, bytes, or an already parsed value. */
export async function readGiven(
  body: unknown,
  contentEncoding: string | null | undefined,
  limitBytes: number,
): Promise<Body | Refusal> {
  if (body === undefined || body === null) return nothingGiven
  if (typeof body === 'string') {
    if (longerThan(body, limitBytes)) return tooLarge(limitBytes)
    return body.charCodeAt(0) === gzipMagic ? gzipAsText : filled(body)
  }
  const isBuffer = body instanceof ArrayBuffer
  if (!isBuffer && !ArrayBuffer.isView(body)) return { value: body }
  const gzip = isGzip(contentEncoding)
  if (gzip === undefined) return { error: 'encoding_unsupported' }
  if (body.byteLength > limitBytes) return tooLarge(limitBytes)
  const bytes = isBuffer ? new Uint8Array(body) : new Uint8Array(body.buffer, body.byteOffset, body.byteLength)
  // Hosts inflate before they hand over, and some leave the header as it was: the bytes tell.
  if (!gzip || bytes[0] !== gzipMagic) return filled(new TextDecoder().decode(bytes))
  return readStream(new Blob([Uint8Array.from(bytes)]).stream(), true, limitBytes)
}

/** The first byte of everything gzipped, which no JSON begins with. */
const gzipMagic = 0x1f

const gzipAsText: Refusal = {
  error: 'body_gzip_broken',
  hint: 'The body was read as text while it was gzip, which destroys it: hand over its bytes.',
}

const nothingGiven: Refusal = {
  error: 'body_empty',
  hint: 'No body was handed over: parsers pass over one without the Content-Type they know. Let the parser take every type, or mount the receiver before it.',
}

/** Runtimes know only when it is too late that a host has read the body at a level below `Request`. */
function isUsed(error: unknown): boolean {
  return error instanceof TypeError && /unusable|already|disturbed|locked/i.test(error.message)
}

/** `undefined` for an encoding that is not taken. */
function isGzip(contentEncoding: string | null | undefined): boolean | undefined {
  const encoding = contentEncoding?.trim().toLowerCase()
  if (!encoding || encoding === 'identity') return false
  return encoding === 'gzip' || encoding === 'x-gzip' ? true : undefined
}

/** Reads to the end or to the limit, which counts what was sent and what it inflates to. Throws when the stream is locked. */
async function readStream(
  stream: ReadableStream<Uint8Array<ArrayBuffer>>,
  gzip: boolean,
  limitBytes: number,
): Promise<Body | Refusal> {
  const sent = stream.getReader()
  let sentBytes = 0
  let flaw: Refusal = { error: 'body_gzip_broken' }

  async function next(): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const { value } = await sent.read().catch((error: unknown) => {
      flaw = { error: 'body_interrupted' }
      throw error
    })
    sentBytes += value?.byteLength ?? 0
    return sentBytes > limitBytes ? over() : value
  }
  function over(): never {
    flaw = tooLarge(limitBytes)
    throw new RangeError('The body is over the limit.')
  }

  const inflated = gzip ? inflate(next).getReader() : undefined
  const decoder = new TextDecoder()
  let text = ''
  let bytes = 0
  try {
    for (;;) {
      const chunk = inflated ? (await inflated.read()).value : await next()
      if (chunk === undefined) break
      bytes += chunk.byteLength
      if (bytes > limitBytes) over()
      text += decoder.decode(chunk, { stream: true })
    }
  } catch {
    // Not awaited: a sender that goes on sending must not hold the answer back.
    for (const reader of [inflated, sent]) reader?.cancel().catch(() => {})
    return flaw
  }
  return filled(text + decoder.decode())
}

/** Some runtimes inflate a chunk in one go, to a thousand times its size: they are given small ones. */
const inflateBytes = 4096

function inflate(next: () => Promise<Uint8Array<ArrayBuffer> | undefined>): ReadableStream<Uint8Array<ArrayBuffer>> {
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
  return pieces.pipeThrough(new DecompressionStream('gzip'))
}

function filled(text: string): Body | Refusal {
  return text.trim() === '' ? { error: 'body_empty' } : { text }
}

function longerThan(text: string, limitBytes: number): boolean {
  if (text.length > limitBytes) return true
  return text.length * 3 > limitBytes && new TextEncoder().encode(text).byteLength > limitBytes
}

function tooLarge(limitBytes: number): Refusal {
  return {
    error: 'body_too_large',
    hint: `A body has at most ${limitBytes} bytes, after inflating: raise \`limits.bodyBytes\` if yours are larger.`,
  }
}
