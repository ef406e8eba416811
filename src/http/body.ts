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
  readonly contentLength: string | null | undefined
}

/** Whether a result is a refusal and not a body. */
export const isRefusal = (result: Body | Refusal): result is Refusal => 'error' in result

/** Reads the body of a request, inflating it if need be, and never more than `limitBytes` of it. */
export async function readRequest(
  request: ReadableRequest,
  headers: BodyHeaders,
  limitBytes: number,
): Promise<Body | Refusal> {
  const gzip = isGzip(headers.contentEncoding)
  if (gzip === undefined) return { error: 'encoding_unsupported' }
  if (request.bodyUsed) return { error: 'body_consumed' }

  const declared =
    headers.contentLength === null || headers.contentLength === undefined ? Number.NaN : Number(headers.contentLength)
  if (declared > limitBytes) return tooLarge(limitBytes)
  // The runtime holds a body to its declared length, so this cannot grow beyond the limit, and it is the fast way.
  if (!gzip && declared >= 0) {
    try {
      return filled(await request.text())
    } catch (error) {
      return { error: isUsed(error) ? 'body_consumed' : 'body_interrupted' }
    }
  }
  return request.body === null ? { error: 'body_empty' } : readStream(request.body, gzip, limitBytes)
}

/** Takes a body that the host has read: text, bytes, or an already parsed value. */
export async function readGiven(
  body: unknown,
  contentEncoding: string | null | undefined,
  limitBytes: number,
): Promise<Body | Refusal> {
  if (body === undefined || body === null) return { error: 'body_empty' }
  if (typeof body === 'string') return longerThan(body, limitBytes) ? tooLarge(limitBytes) : filled(body)
  const bytes = bytesOf(body)
  if (bytes === undefined) return { value: body }
  // Hosts inflate before they hand over, and some leave the header as it was: the bytes tell.
  const gzip = isGzip(contentEncoding)
  if (gzip === undefined) return { error: 'encoding_unsupported' }
  if (bytes.byteLength === 0) return { error: 'body_empty' }
  if (bytes.byteLength > limitBytes) return tooLarge(limitBytes)
  const stream = new Blob([bytes]).stream()
  return readStream(stream, gzip && bytes[0] === 0x1f && bytes[1] === 0x8b, limitBytes)
}

/** Runtimes know only when it is too late that a host has read the body at a level below `Request`. */
function isUsed(error: unknown): boolean {
  return error instanceof TypeError && /unusable|already|disturbed|locked/i.test(error.message)
}

function bytesOf(body: unknown): Uint8Array<ArrayBuffer> | undefined {
  if (body instanceof ArrayBuffer) return new Uint8Array(body)
  if (!ArrayBuffer.isView(body)) return undefined
  const view = new Uint8Array(body.byteLength)
  view.set(new Uint8Array(body.buffer, body.byteOffset, body.byteLength))
  return view
}

/** `undefined` for an encoding that is not taken. */
function isGzip(contentEncoding: string | null | undefined): boolean | undefined {
  if (contentEncoding === null || contentEncoding === undefined) return false
  const encoding = contentEncoding.trim().toLowerCase()
  if (encoding === '' || encoding === 'identity') return false
  return encoding === 'gzip' || encoding === 'x-gzip' ? true : undefined
}

async function readStream(
  stream: ReadableStream<Uint8Array<ArrayBuffer>>,
  gzip: boolean,
  limitBytes: number,
): Promise<Body | Refusal> {
  let received = 0
  const counted = stream.pipeThrough(
    new TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>({
      transform(chunk, controller) {
        received += chunk.byteLength
        controller.enqueue(chunk)
      },
    }),
  )
  const reader = (gzip ? counted.pipeThrough(new DecompressionStream('gzip')) : counted).getReader()
  const decoder = new TextDecoder()
  let text = ''
  let inflated = 0
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) break
      inflated += value.byteLength
      if (inflated > limitBytes || received > limitBytes) {
        // Not awaited: a sender that goes on sending must not hold the answer back.
        reader.cancel().catch(() => {})
        return tooLarge(limitBytes)
      }
      text += decoder.decode(value, { stream: true })
    }
  } catch {
    if (received === 0) return { error: 'body_empty' }
    return { error: gzip ? 'body_gzip_broken' : 'body_interrupted' }
  }
  return filled(text + decoder.decode())
}

function filled(text: string): Body | Refusal {
  return text === '' || text.trim() === '' ? { error: 'body_empty' } : { text }
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
