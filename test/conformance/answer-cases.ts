import type { Posted, PostedBody } from './post.ts'

/** One request and its expected answer. */
export interface AnswerCase extends Posted {
  /** What is expected, as a sentence. */
  readonly name: string
  readonly status: number
  /** `code` of the answer. Left out where the host that mounts the receiver can answer itself. */
  readonly code?: number
  /** `error` of a refusal. */
  readonly error?: string
  /** `invalid-event-number` of a refusal. */
  readonly number?: number | undefined
}

/** A mark in messages. No answer may show it. */
export const payloadMark = 'payload-mark-81d7'

/** A message that every receiver accepts. */
const state: string = `{"vin":"0FLEETV14T0000004","createdAt":"2026-11-21T10:00:00Z","state":"online","note":"${payloadMark}"}`

/** A collector event that every receiver accepts. */
const envelope: string =
  '{"time":1795255200.5,"host":"h","source":"0FLEETV14T0000004","sourcetype":"vehicle:telemetry:data","event":{"Soc":"50"}}'

const collectorPaths: readonly string[] = [
  '/services/collector',
  '/services/collector/event',
  '/services/collector/event/1.0',
]
const healthPaths: readonly string[] = ['/services/collector/health', '/services/collector/health/1.0']

const refusals = {
  authorization_missing: { status: 401, code: 2 },
  authorization_scheme: { status: 401, code: 3 },
  secret_wrong: { status: 403, code: 4 },
  body_empty: { status: 400, code: 5 },
  body_not_json: { status: 400, code: 6 },
  time_invalid: { status: 400, code: 6 },
  body_gzip_broken: { status: 400, code: 6 },
  event_missing: { status: 400, code: 12 },
  event_blank: { status: 400, code: 13 },
  body_too_large: { status: 413, code: 6 },
  encoding_unsupported: { status: 415, code: 6 },
  method_not_allowed: { status: 405, code: 405 },
}

const accepts = (name: string, posted: Posted): AnswerCase => ({ name, ...posted, status: 200, code: 0 })

/** `number` is that of the broken event. */
const refuses = (name: string, error: keyof typeof refusals, posted: Posted, number?: number): AnswerCase => ({
  ...{ name, ...posted, ...refusals[error], error, number },
})

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
function unfinished(text: string): () => PostedBody {
  return () =>
    new ReadableStream<Uint8Array<ArrayBuffer>>({
      start(controller) {
        controller.enqueue(new TextEncoder().encode(text))
      },
    })
}

function gzipped(text: string): () => Promise<PostedBody> {
  return async () => {
    const stream = new Blob([text]).stream().pipeThrough(new CompressionStream('gzip'))
    return new Uint8Array(await new Response(stream).arrayBuffer())
  }
}

/** A gzip stream that ends too early. */
function torn(text: string): () => Promise<PostedBody> {
  return async () => {
    const whole = await gzipped(text)()
    return whole instanceof Uint8Array ? whole.slice(0, whole.length - 12) : whole
  }
}

/** Bodies: what they contain and how they are sent. */
function bodyCases(secret: string, bodyBytes: number): readonly AnswerCase[] {
  const headers = { authorization: secret }
  const relayed = { authorization: `Splunk ${secret}` }
  const gzip = { ...headers, 'content-encoding': 'gzip' }
  const typed = { ...headers, 'content-type': 'application/x-www-form-urlencoded' }
  const long = `{"vin":"V","x":"${'x'.repeat(bodyBytes)}"}`
  const post = (body: NonNullable<Posted['body']>, more: Posted['headers'] = headers): Posted => ({
    headers: more,
    body,
  })
  const timed = (time: string): string => envelope.replace('1795255200.5', time)
  return [
    accepts('A message is answered with exactly the success of the collector protocol', post(state)),
    accepts('A wrong Content-Type makes no difference', post(state, typed)),
    accepts('Several objects one after another are accepted', post(`${state}${state}\n ${state}`)),
    accepts('A list of objects is accepted', post(`[${state},${state}]`)),
    accepts('A body in chunks, without a Content-Length, is accepted', post(chunked(state))),
    accepts('A body in gzip is accepted', post(gzipped(`${state}${state}`), gzip)),
    accepts('An unknown object is accepted', post('{"hello":"world"}')),
    accepts('An envelope is accepted at the root', post(envelope, relayed)),
    accepts(
      'Time as text, and in milliseconds, is accepted',
      post(`${timed('"1795255200.5"')}${timed('1795255200500')}`),
    ),
    refuses('An empty body is refused', 'body_empty', post('')),
    refuses('A blank body is refused', 'body_empty', post(' \r\n ')),
    refuses('An empty body in chunks is refused', 'body_empty', post(chunked(''))),
    refuses('A body that is not JSON is refused', 'body_not_json', post('hello')),
    refuses('A bare scalar is refused', 'body_not_json', post('42')),
    refuses('A list with a scalar in it is refused at the scalar', 'body_not_json', post(`[${state},42]`), 1),
    refuses(
      'The answer has the number of the broken event of a batch',
      'body_not_json',
      post(`${state}${state}{"vin":`),
      2,
    ),
    refuses('A wrong time is refused', 'time_invalid', post(timed('"noon"'))),
    refuses('A body that is not gzip although its header says so is refused', 'body_gzip_broken', post(state, gzip)),
    refuses('Incomplete gzip is refused', 'body_gzip_broken', post(torn(state), gzip)),
    refuses('A body over the limit is refused', 'body_too_large', post(long)),
    refuses('A body over the limit in chunks is refused', 'body_too_large', post(chunked(long))),
    refuses('A gzip body that is over the limit when inflated is refused', 'body_too_large', post(gzipped(long), gzip)),
    refuses('Another encoding is refused', 'encoding_unsupported', post(state, { ...gzip, 'content-encoding': 'br' })),
    ...collectorPaths.flatMap((path): readonly AnswerCase[] => {
      const at = (body: string): Posted => ({ path, headers: relayed, body })
      const foreign = '{"event":"a line of a log","sourcetype":"syslog"}'
      return [
        accepts(`Envelopes are accepted at ${path}`, at(`${envelope}${envelope}`)),
        accepts(`A foreign event does not sink its batch at ${path}`, at(`${envelope}${foreign}${envelope}`)),
        refuses(`An envelope without event is refused at ${path}`, 'event_missing', at('{"time":1}'), 0),
        refuses(
          `An envelope with a blank event is refused at ${path}`,
          'event_blank',
          at(`${envelope}{"event":""}`),
          1,
        ),
      ]
    }),
  ]
}

function secretCases(secret: string): readonly AnswerCase[] {
  const sent = (authorization: string, body: NonNullable<Posted['body']> = state): Posted => ({
    headers: { authorization },
    body,
  })
  const basic = (password: string): string => `Basic ${btoa(`x:${password}`)}`
  const wrong = `${secret}x`
  return [
    refuses('No Authorization is refused', 'authorization_missing', { body: state }),
    refuses('Another scheme is refused', 'authorization_scheme', sent(`Bearer ${secret}`)),
    refuses('A wrong secret is refused', 'secret_wrong', sent(wrong)),
    refuses('A part of the secret is refused', 'secret_wrong', sent(secret.slice(0, -1))),
    refuses('The secret in another case is refused', 'secret_wrong', sent(swapped(secret))),
    accepts("The collector's scheme word is accepted in any case", sent(`sPLUNK ${secret}`)),
    refuses('A wrong secret after the scheme word is refused', 'secret_wrong', sent(`Splunk ${wrong}`)),
    refuses('HTTP Basic is refused at the root', 'authorization_scheme', sent(basic(secret))),
    refuses('A secret in the query does not count', 'authorization_missing', {
      path: `/?token=${secret}`,
      body: state,
    }),
    refuses('The secret is checked before the body and its encoding', 'secret_wrong', {
      headers: { authorization: wrong, 'content-encoding': 'br' },
      body: 'no JSON',
    }),
    refuses(
      'A wrong secret is refused before the body has arrived',
      'secret_wrong',
      sent(wrong, unfinished('{"vin":')),
    ),
    ...collectorPaths.flatMap((path): readonly AnswerCase[] => {
      const at = (authorization: string): Posted => ({ path, ...sent(authorization, envelope) })
      return [
        accepts(`HTTP Basic with the secret as password is accepted at ${path}`, at(basic(secret))),
        refuses(`HTTP Basic with another password is refused at ${path}`, 'secret_wrong', at(basic(wrong))),
        refuses(`A bare secret is refused at ${path}`, 'authorization_scheme', at(secret)),
        refuses(`No Authorization is refused at ${path}`, 'authorization_missing', { path, body: envelope }),
      ]
    }),
  ]
}

function swapped(text: string): string {
  const letters = [...text].map((letter) =>
    letter === letter.toLowerCase() ? letter.toUpperCase() : letter.toLowerCase(),
  )
  return letters.join('') === text ? `${text}-` : letters.join('')
}

function pathCases(secret: string): readonly AnswerCase[] {
  const sent = { headers: { authorization: secret }, body: state }
  const headers = { authorization: `Splunk ${secret}` }
  const get = (path: string): Posted => ({ path, method: 'GET', headers })
  return [
    accepts('A trailing slash makes no difference at the root', { ...sent, path: '/' }),
    accepts('A query makes no difference', { ...sent, path: '?from=here' }),
    { name: 'OPTIONS needs no secret at the root', method: 'OPTIONS', status: 200 },
    refuses('GET is refused at the root', 'method_not_allowed', { method: 'GET', headers: sent.headers }),
    refuses('PUT is refused at the root', 'method_not_allowed', { ...sent, method: 'PUT' }),
    // Without a code, because a host that mounts the receiver can answer itself.
    { name: 'An unknown path is not found', ...sent, path: '/nothing-is-here', status: 404 },
    ...collectorPaths.flatMap((path): readonly AnswerCase[] => [
      accepts(`A trailing slash makes no difference at ${path}`, { path: `${path}/`, headers, body: envelope }),
      { name: `OPTIONS needs no secret at ${path}`, path, method: 'OPTIONS', status: 200 },
      refuses(`GET is refused at ${path}`, 'method_not_allowed', get(path)),
    ]),
    ...healthPaths.flatMap((path): readonly AnswerCase[] => [
      { name: `GET ${path} needs no secret`, path, method: 'GET', status: 200, code: 17 },
      refuses(`POST is refused at ${path}`, 'method_not_allowed', { path, headers, body: envelope }),
    ]),
  ]
}

/** Every case, for a receiver with this secret and this limit on the size of a body. */
export function answerCases(secret: string, bodyBytes: number): readonly AnswerCase[] {
  return [...bodyCases(secret, bodyBytes), ...secretCases(secret), ...pathCases(secret)]
}
