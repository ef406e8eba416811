import { equal } from './expectations.ts'
import type { Conformance } from './inbox-conformance.ts'
import { type Posted, posting } from './post.ts'
import type { ReceiverUnderTest } from './receiver-conformance.ts'

interface Case extends Posted {
  readonly name: string
  readonly status: number
  readonly code: number
  /** `error` of a refusal. */
  readonly error?: string
  /** `invalid-event-number` of a refusal. */
  readonly number?: number
}

const success = '{"text":"Success","code":0}'
const state = '{"vin":"0FLEETV14T0000004","createdAt":"2026-11-21T10:00:00Z","state":"online"}'
const envelope =
  '{"time":1795255200.5,"host":"h","source":"0FLEETV14T0000004","sourcetype":"vehicle:telemetry:data","event":{"Soc":"50"}}'
const collectorPaths = ['/services/collector', '/services/collector/event', '/services/collector/event/1.0']
const healthPaths = ['/services/collector/health', '/services/collector/health/1.0']

/** The contract's table of answers, over HTTP. */
export function answerChecks(subject: ReceiverUnderTest): readonly Conformance[] {
  const post = posting(subject)
  const gzipped: Conformance = {
    name: 'A gzipped body is accepted, and the limit counts what it inflates to',
    async run() {
      const headers = { authorization: subject.secret, 'content-encoding': 'gzip' }
      equal((await post({ headers, body: await gzip(state) })).text, success)
      const { bodyBytes = 1_048_576 } = subject
      equal((await post({ headers, body: await gzip(`{"x":"${'x'.repeat(bodyBytes)}"}`) })).status, 413)
    },
  }
  const table = cases(subject).map(({ name, status, code, error, number, ...posted }) => ({
    name,
    async run() {
      const { status: answered, headers, text } = await post(posted)
      if (text.includes(subject.secret)) throw new Error('The answer shows the secret.')
      if (answered === 200 && text === '' && posted.method === 'OPTIONS') return
      const body = Object(JSON.parse(text))
      equal([answered, body.code, body.error ?? null], [status, code, error ?? null])
      if (code === 0) equal(text, success)
      if (number !== undefined) equal(body['invalid-event-number'], number)
      if (status === 405) equal(headers.get('allow') !== null, true)
      if (!(headers.get('content-type') ?? '').includes('application/json'))
        throw new Error('The answer is not called JSON.')
    },
  }))
  return [...table, gzipped]
}

async function gzip(text: string): Promise<Uint8Array<ArrayBuffer>> {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream('gzip'))
  return new Uint8Array(await new Response(stream).arrayBuffer())
}

function cases({ secret, bodyBytes = 1_048_576 }: ReceiverUnderTest): readonly Case[] {
  const authorization = secret
  const headers = { authorization }
  const relayed = { authorization: `Splunk ${secret}` }
  const accepted = { status: 200, code: 0 }
  const gzip = { ...headers, 'content-encoding': 'gzip' }
  const long = `{"vin":"V","x":"${'x'.repeat(bodyBytes)}"}`
  return [
    {
      name: 'A message is answered with exactly the success of the collector protocol',
      headers,
      body: state,
      ...accepted,
    },
    {
      name: 'A trailing slash makes no difference',
      path: '/services/collector/',
      headers: relayed,
      body: envelope,
      ...accepted,
    },
    {
      name: 'Several objects one after another are accepted',
      headers,
      body: `${state}${state}\n ${state}`,
      ...accepted,
    },
    { name: 'A list of objects is accepted', headers, body: `[${state},${state}]`, ...accepted },
    {
      name: 'A wrong Content-Type makes no difference',
      headers: { ...headers, 'content-type': 'application/x-www-form-urlencoded' },
      body: state,
      ...accepted,
    },
    { name: 'A body in chunks, without its length, is accepted', headers, body: chunked(state), ...accepted },
    { name: 'An unknown object is accepted', headers, body: '{"hello":"world"}', ...accepted },
    { name: 'An envelope is accepted at the root', headers: relayed, body: envelope, ...accepted },
    {
      name: 'The scheme word is taken in any case',
      headers: { authorization: `sPLUNK ${secret}` },
      body: envelope,
      ...accepted,
    },
    { name: 'No Authorization is refused', body: state, status: 401, code: 2, error: 'authorization_missing' },
    {
      name: 'Another scheme is refused',
      headers: { authorization: `Bearer ${secret}` },
      body: state,
      status: 401,
      code: 3,
      error: 'authorization_scheme',
    },
    {
      name: 'A wrong secret is refused',
      headers: { authorization: `${secret}x` },
      body: state,
      status: 403,
      code: 4,
      error: 'secret_wrong',
    },
    {
      name: 'A part of the secret is refused',
      headers: { authorization: secret.slice(0, -1) },
      body: state,
      status: 403,
      code: 4,
      error: 'secret_wrong',
    },
    {
      name: 'The secret in another case is refused',
      headers: { authorization: swapped(secret) },
      body: state,
      status: 403,
      code: 4,
      error: 'secret_wrong',
    },
    {
      name: 'A secret in the query is not looked at',
      path: `/?token=${secret}`,
      body: state,
      status: 401,
      code: 2,
      error: 'authorization_missing',
    },
    { name: 'An empty body is refused', headers, body: '', status: 400, code: 5, error: 'body_empty' },
    { name: 'What is not JSON is refused', headers, body: 'hello', status: 400, code: 6, error: 'body_not_json' },
    { name: 'A bare scalar is refused', headers, body: '42', status: 400, code: 6, error: 'body_not_json' },
    {
      name: 'The answer says at which event of a batch it stopped',
      headers,
      body: `${state}${state}{"vin":`,
      status: 400,
      code: 6,
      error: 'body_not_json',
      number: 2,
    },
    {
      name: 'A wrong time is refused',
      headers: relayed,
      body: envelope.replace('1795255200.5', '"noon"'),
      status: 400,
      code: 6,
      error: 'time_invalid',
    },
    { name: 'Broken gzip is refused', headers: gzip, body: state, status: 400, code: 6, error: 'body_gzip_broken' },
    { name: 'A body over the limit is refused', headers, body: long, status: 413, code: 6, error: 'body_too_large' },
    {
      name: 'A body over the limit in chunks is refused',
      headers,
      body: chunked(long),
      status: 413,
      code: 6,
      error: 'body_too_large',
    },
    {
      name: 'Another encoding is refused',
      headers: { ...headers, 'content-encoding': 'br' },
      body: state,
      status: 415,
      code: 6,
      error: 'encoding_unsupported',
    },
    {
      name: 'Another method is refused',
      method: 'PUT',
      headers,
      body: state,
      status: 405,
      code: 405,
      error: 'method_not_allowed',
    },
    ...collectorPaths.flatMap((path): readonly Case[] => [
      {
        name: `An envelope is accepted at ${path}`,
        path,
        headers: relayed,
        body: `${envelope}${envelope}`,
        ...accepted,
      },
      {
        name: `HTTP Basic with the secret as password is accepted at ${path}`,
        path,
        headers: { authorization: `Basic ${btoa(`x:${secret}`)}` },
        body: envelope,
        ...accepted,
      },
      {
        name: `A bare secret is refused at ${path}`,
        path,
        headers,
        body: envelope,
        status: 401,
        code: 3,
        error: 'authorization_scheme',
      },
      {
        name: `An envelope without event is refused at ${path}`,
        path,
        headers: relayed,
        body: '{"time":1}',
        status: 400,
        code: 12,
        error: 'event_missing',
        number: 0,
      },
      {
        name: `An envelope with a blank event is refused at ${path}`,
        path,
        headers: relayed,
        body: `${envelope}{"event":""}`,
        status: 400,
        code: 13,
        error: 'event_blank',
        number: 1,
      },
      { name: `OPTIONS needs no secret at ${path}`, path, method: 'OPTIONS', ...accepted },
    ]),
    ...healthPaths.map((path): Case => ({
      name: `GET ${path} needs no secret`,
      path,
      method: 'GET',
      status: 200,
      code: 17,
    })),
  ]
}

function chunked(text: string): ReadableStream<Uint8Array<ArrayBuffer>> {
  const bytes = new TextEncoder().encode(text)
  const size = Math.max(1, Math.ceil(bytes.length / 3))
  let at = 0
  return new ReadableStream({
    pull(controller) {
      if (at >= bytes.length) return controller.close()
      controller.enqueue(bytes.slice(at, at + size))
      at += size
    },
  })
}

function swapped(text: string): string {
  const swappedCase = [...text]
    .map((letter) => (letter === letter.toLowerCase() ? letter.toUpperCase() : letter.toLowerCase()))
    .join('')
  return swappedCase === text ? `${text}-` : swappedCase
}
