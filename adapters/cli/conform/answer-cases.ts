import { rowsOf } from './answer-table.ts'
import type { Posted, PostedBody } from './post.ts'

/** One request and its expected answer. */
export interface AnswerCase extends Posted {
  /** What is sent. */
  readonly name: string
  readonly status: number
  /** `code` of the answer. Left out where the host that mounts the receiver can answer itself. */
  readonly code?: number
  /** `error` of a refusal. */
  readonly error?: string
  /** `invalid-event-number` of a refusal. */
  readonly number?: number | undefined
}

/** A body in three chunks without a Content-Length. The cuts can fall inside a character. */
export function chunked(text: string): () => PostedBody {
  return () => {
    const bytes = new TextEncoder().encode(text)
    const size = Math.max(1, Math.ceil(bytes.length / 3))
    let at = 0
    return new ReadableStream<Uint8Array<ArrayBuffer>>({
      pull(controller) {
        if (at >= bytes.length) return controller.close()
        controller.enqueue(bytes.slice(at, at + size))
        at += size
      },
    })
  }
}

/** The beginning of a body that never ends. */
const unfinished = (text: string) => (): PostedBody =>
  new ReadableStream<Uint8Array<ArrayBuffer>>({ start: (to) => to.enqueue(new TextEncoder().encode(text)) })

/** Every case of the table of answers, for a receiver with this secret and this limit on the size of a body, and bodies without a length. */
export function answerCases(secret: string, bodyBytes: number): readonly AnswerCase[] {
  const headers = { authorization: secret }
  const long = chunked(`{"x":"${'x'.repeat(bodyBytes)}"}`)
  return [
    ...rowsOf(secret, bodyBytes).map(({ case: name, code, alone = false, ...row }) =>
      alone ? { ...row, name } : { ...row, name, code },
    ),
    { name: 'a body in chunks', headers, body: chunked('{"vin":"V","state":"online"}'), status: 200, code: 0 },
    { name: 'an empty body in chunks', headers, body: chunked(''), status: 400, code: 5, error: 'body_empty' },
    {
      name: 'a body that is not gzip although its header says so',
      headers: { ...headers, 'content-encoding': 'gzip' },
      body: '{"vin":"V","state":"online"}',
      status: 400,
      code: 6,
      error: 'body_gzip_broken',
    },
    { name: 'a body over the limit in chunks', headers, body: long, status: 413, code: 6, error: 'body_too_large' },
    {
      name: 'a wrong secret before the body has arrived',
      headers: { authorization: 'wrong' },
      body: unfinished('{"vin":'),
      status: 403,
      code: 4,
      error: 'secret_wrong',
    },
  ]
}
