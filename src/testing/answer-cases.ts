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
  readonly number?: number
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

/** The parts of an answer that are compared. */
type Expected = Required<Pick<AnswerCase, 'status' | 'code'>> & Pick<AnswerCase, 'error'>

const accepted: Expected = { status: 200, code: 0 }

const refusals = {
  missing: { status: 401, code: 2, error: 'authorization_missing' },
  scheme: { status: 401, code: 3, error: 'authorization_scheme' },
  wrong: { status: 403, code: 4, error: 'secret_wrong' },
  empty: { status: 400, code: 5, error: 'body_empty' },
  notJson: { status: 400, code: 6, error: 'body_not_json' },
  time: { status: 400, code: 6, error: 'time_invalid' },
  gzip: { status: 400, code: 6, error: 'body_gzip_broken' },
  noEvent: { status: 400, code: 12, error: 'event_missing' },
  blankEvent: { status: 400, code: 13, error: 'event_blank' },
  tooLarge: { status: 413, code: 6, error: 'body_too_large' },
  encoding: { status: 415, code: 6, error: 'encoding_unsupported' },
  method: { status: 405, code: 405, error: 'method_not_allowed' },
} satisfies Readonly<Record<string, Expected>>

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
  const long = `{"vin":"V","x":"${'x'.repeat(bodyBytes)}"}`
  const post = (
    body: NonNullable<Posted['body']>,
    more: NonNullable<Posted['headers']> = headers,
  ): Pick<AnswerCase, 'headers' | 'body'> => ({
    headers: more,
    body,
  })
  const typed = { ...headers, 'content-type': 'application/x-www-form-urlencoded' }
  return [
    {
      name: 'A message is answered with exactly the success of the collector protocol',
      ...post(state),
      ...accepted,
    },
    { name: 'A wrong Content-Type makes no difference', ...post(state, typed), ...accepted },
    { name: 'Several objects one after another are accepted', ...post(`${state}${state}\n ${state}`), ...accepted },
    { name: 'A list of objects is accepted', ...post(`[${state},${state}]`), ...accepted },
    { name: 'A body in chunks, without a Content-Length, is accepted', ...post(chunked(state)), ...accepted },
    { name: 'A body in gzip is accepted', ...post(gzipped(`${state}${state}`), gzip), ...accepted },
    { name: 'An unknown object is accepted', ...post('{"hello":"world"}'), ...accepted },
    { name: 'An envelope is accepted at the root', ...post(envelope, relayed), ...accepted },
    {
      name: 'Time as text, and in milliseconds, is accepted',
      ...post(
        `${envelope.replace('1795255200.5', '"1795255200.5"')}${envelope.replace('1795255200.5', '1795255200500')}`,
      ),
      ...accepted,
    },
    { name: 'An empty body is refused', ...post(''), ...refusals.empty },
    { name: 'A blank body is refused', ...post(' \r\n '), ...refusals.empty },
    { name: 'An empty body in chunks is refused', ...post(chunked('')), ...refusals.empty },
    { name: 'A body that is not JSON is refused', ...post('hello'), ...refusals.notJson },
    { name: 'A bare scalar is refused', ...post('42'), ...refusals.notJson },
    {
      name: 'A list with a scalar in it is refused at the scalar',
      ...post(`[${state},42]`),
      ...refusals.notJson,
      number: 1,
    },
    {
      name: 'The answer has the number of the broken event of a batch',
      ...post(`${state}${state}{"vin":`),
      ...refusals.notJson,
      number: 2,
    },
    { name: 'A wrong time is refused', ...post(envelope.replace('1795255200.5', '"noon"')), ...refusals.time },
    { name: 'A body that is not gzip although its header says so is refused', ...post(state, gzip), ...refusals.gzip },
    { name: 'Incomplete gzip is refused', ...post(torn(state), gzip), ...refusals.gzip },
    { name: 'A body over the limit is refused', ...post(long), ...refusals.tooLarge },
    { name: 'A body over the limit in chunks is refused', ...post(chunked(long)), ...refusals.tooLarge },
    {
      name: 'A gzip body that is over the limit when inflated is refused',
      ...post(gzipped(long), gzip),
      ...refusals.tooLarge,
    },
    {
      name: 'Another encoding is refused',
      ...post(state, { ...headers, 'content-encoding': 'br' }),
      ...refusals.encoding,
    },
    ...collectorPaths.flatMap((path): readonly AnswerCase[] => [
      { name: `Envelopes are accepted at ${path}`, path, ...post(`${envelope}${envelope}`, relayed), ...accepted },
      {
        name: `A foreign event does not sink its batch at ${path}`,
        path,
        ...post(`${envelope}{"event":"a line of a log","sourcetype":"syslog"}${envelope}`, relayed),
        ...accepted,
      },
      {
        name: `An envelope without event is refused at ${path}`,
        path,
        ...post('{"time":1}', relayed),
        ...refusals.noEvent,
        number: 0,
      },
      {
        name: `An envelope with a blank event is refused at ${path}`,
        path,
        ...post(`${envelope}{"event":""}`, relayed),
        ...refusals.blankEvent,
        number: 1,
      },
    ]),
  ]
}

function secretCases(secret: string): readonly AnswerCase[] {
  const authorized = (authorization: string): Pick<AnswerCase, 'headers' | 'body'> => ({
    headers: { authorization },
    body: state,
  })
  const basic = (password: string): string => `Basic ${btoa(`x:${password}`)}`
  return [
    { name: 'No Authorization is refused', body: state, ...refusals.missing },
    { name: 'Another scheme is refused', ...authorized(`Bearer ${secret}`), ...refusals.scheme },
    { name: 'A wrong secret is refused', ...authorized(`${secret}x`), ...refusals.wrong },
    { name: 'A part of the secret is refused', ...authorized(secret.slice(0, -1)), ...refusals.wrong },
    { name: 'The secret in another case is refused', ...authorized(swapped(secret)), ...refusals.wrong },
    { name: "The collector's scheme word is accepted in any case", ...authorized(`sPLUNK ${secret}`), ...accepted },
    { name: 'A wrong secret after the scheme word is refused', ...authorized(`Splunk ${secret}x`), ...refusals.wrong },
    { name: 'HTTP Basic is refused at the root', ...authorized(basic(secret)), ...refusals.scheme },
    { name: 'A secret in the query does not count', path: `/?token=${secret}`, body: state, ...refusals.missing },
    {
      name: 'The secret is checked before the body and its encoding',
      headers: { authorization: `${secret}x`, 'content-encoding': 'br' },
      body: 'no JSON',
      ...refusals.wrong,
    },
    {
      name: 'A wrong secret is refused before the body has arrived',
      headers: { authorization: `${secret}x` },
      body: unfinished('{"vin":'),
      ...refusals.wrong,
    },
    ...collectorPaths.flatMap((path): readonly AnswerCase[] => {
      const at = (authorization: string): Pick<AnswerCase, 'path' | 'headers' | 'body'> => ({
        path,
        headers: { authorization },
        body: envelope,
      })
      return [
        {
          name: `HTTP Basic with the secret as password is accepted at ${path}`,
          ...at(basic(secret)),
          ...accepted,
        },
        {
          name: `HTTP Basic with another password is refused at ${path}`,
          ...at(basic(`${secret}x`)),
          ...refusals.wrong,
        },
        { name: `A bare secret is refused at ${path}`, ...at(secret), ...refusals.scheme },
        { name: `No Authorization is refused at ${path}`, path, body: envelope, ...refusals.missing },
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
  const headers = { authorization: secret }
  const relayed = { authorization: `Splunk ${secret}` }
  const healthy = { status: 200, code: 17 } as const
  return [
    { name: 'A trailing slash makes no difference at the root', path: '/', headers, body: state, ...accepted },
    { name: 'A query makes no difference', path: '?from=here', headers, body: state, ...accepted },
    { name: 'OPTIONS needs no secret at the root', method: 'OPTIONS', status: 200 },
    { name: 'GET is refused at the root', method: 'GET', headers, ...refusals.method },
    { name: 'PUT is refused at the root', method: 'PUT', headers, body: state, ...refusals.method },
    // Without a code, because a host that mounts the receiver can answer itself.
    { name: 'An unknown path is not found', path: '/nothing-is-here', headers, body: state, status: 404 },
    ...collectorPaths.flatMap((path): readonly AnswerCase[] => [
      {
        name: `A trailing slash makes no difference at ${path}`,
        path: `${path}/`,
        headers: relayed,
        body: envelope,
        ...accepted,
      },
      { name: `OPTIONS needs no secret at ${path}`, path, method: 'OPTIONS', status: 200 },
      { name: `GET is refused at ${path}`, path, method: 'GET', headers: relayed, ...refusals.method },
    ]),
    ...healthPaths.flatMap((path): readonly AnswerCase[] => [
      { name: `GET ${path} needs no secret`, path, method: 'GET', ...healthy },
      { name: `POST is refused at ${path}`, path, headers: relayed, body: envelope, ...refusals.method },
    ]),
  ]
}

/** Every case, for a receiver with this secret and this limit on the size of a body. */
export function answerCases(secret: string, bodyBytes: number): readonly AnswerCase[] {
  return [...bodyCases(secret, bodyBytes), ...secretCases(secret), ...pathCases(secret)]
}
