import { gzipSync } from 'node:zlib'

/** A mark in messages. No answer may show it. */
export const payloadMark = 'payload-mark-81d7'

type Bytes = Uint8Array<ArrayBuffer>

/** A request that every way into a receiver can carry. */
export interface Sent {
  readonly method?: string
  /** Below wherever the receiver is mounted. */
  readonly path?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string | Bytes
}

/** A request and the answer that it must get: one case of the contract's table of answers. */
export interface Row extends Sent {
  readonly case: string
  readonly status: number
  readonly code: number
  /** The stable error string; left out for success. */
  readonly error?: string
  /** `invalid-event-number`. */
  readonly number?: number | undefined
  /** Headers of the answer beside its content type. */
  readonly answers?: Readonly<Record<string, string>>
  /** Only over HTTP: a method, a header or a path that `accept` does not see. */
  readonly http?: true
  /** Only where the receiver answers on every path. */
  readonly alone?: true
}

type Refusal = (name: string, sent: Sent & Partial<Row>) => Row

const zipped = (body: string): Bytes => new Uint8Array(gzipSync(body))
const state = `{"vin":"0FLEETV14T0000004","createdAt":"2024-02-24T04:58:44.983607402Z","state":"online","note":"${payloadMark}"}`
const envelope =
  '{"event":{"BatteryLevel":81.5},"source":"0FLEETV14T0000004","sourcetype":"maker:telemetry:data","time":1708750724.983}'

/** The contract's table of answers, case by case, of a receiver with this secret and this limit on a body. */
export function rowsOf(secret: string, limit: number): readonly Row[] {
  return [...acceptedRows(secret, limit), ...secretRows(secret), ...bodyRows(secret, limit), ...pathRows(secret)]
}

/** What makes the rows of one answer. */
function makersOf(secret: string) {
  const authorization = secret
  const collected = { authorization: `Splunk ${secret}` }
  const basic = (password: string): Record<string, string> => ({ authorization: `Basic ${btoa(`x:${password}`)}` })
  const encoded = (encoding: string): Record<string, string> => ({ authorization, 'content-encoding': encoding })

  const accepted = (name: string, body: string | Bytes, sent: Sent = { headers: { authorization } }): Row => ({
    case: name,
    status: 200,
    code: 0,
    ...sent,
    body,
  })
  const refused =
    (status: number, code: number, error: string): Refusal =>
    (name, sent) => ({
      case: name,
      status,
      code,
      error,
      headers: { authorization },
      ...sent,
    })
  const missing = refused(401, 2, 'authorization_missing')
  const scheme = refused(401, 3, 'authorization_scheme')
  const wrong = refused(403, 4, 'secret_wrong')
  const empty = refused(400, 5, 'body_empty')
  const noJson = refused(400, 6, 'body_not_json')
  const noGzip = refused(400, 6, 'body_gzip_broken')
  const tooLarge = refused(413, 6, 'body_too_large')
  const unsupported = refused(415, 6, 'encoding_unsupported')
  const noMethod = refused(405, 405, 'method_not_allowed')
  const noPath = refused(404, 404, 'path_unknown')
  return {
    authorization,
    collected,
    basic,
    encoded,
    accepted,
    missing,
    scheme,
    wrong,
    empty,
    noJson,
    noGzip,
    tooLarge,
    unsupported,
    noMethod,
    noPath,
    refused,
  }
}

const options = (path: string, allow: string): Row => ({
  case: `OPTIONS ${path} without a secret`,
  method: 'OPTIONS',
  path,
  status: 200,
  code: 0,
  http: true,
  answers: { allow },
})

function collectorRows(secret: string, path: string): readonly Row[] {
  const { collected, basic, accepted, missing, scheme, wrong, noMethod, refused } = makersOf(secret)
  const sent = { path, headers: collected }
  return [
    accepted(`a message at ${path}`, envelope, sent),
    accepted(`a batch at ${path}/`, `${envelope}\n${envelope}`, { ...sent, path: `${path}/` }),
    options(path, 'POST, OPTIONS'),
    refused(400, 12, 'event_missing')(`no event at ${path}`, { ...sent, body: `${envelope}{"time":1}`, number: 1 }),
    refused(400, 12, 'event_missing')(`event null at ${path}`, { ...sent, body: '{"event":null}', number: 0 }),
    refused(400, 12, 'event_missing')(`no envelope at ${path}`, { ...sent, body: state, number: 0 }),
    refused(400, 13, 'event_blank')(`blank event at ${path}`, { ...sent, body: '{"event":""}', number: 0 }),
    accepted(
      `a foreign event between others at ${path}`,
      `${envelope}{"event":"a line of a log","sourcetype":"syslog"}${envelope}`,
      sent,
    ),
    accepted(`HTTP Basic with the secret as password at ${path}`, envelope, { path, headers: basic(secret) }),
    wrong(`HTTP Basic with another password at ${path}`, { path, body: envelope, headers: basic(`${secret}x`) }),
    missing(`no Authorization at ${path}`, { path, body: envelope, headers: {} }),
    scheme(`a bare secret at ${path}`, { path, body: envelope }),
    noMethod(`GET ${path}`, { method: 'GET', path, http: true, answers: { allow: 'POST, OPTIONS' } }),
  ]
}

function healthRows(secret: string, path: string): readonly Row[] {
  const { noMethod } = makersOf(secret)
  const allow = 'GET, HEAD, OPTIONS'
  return [
    { case: `GET ${path} without a secret`, method: 'GET', path, http: true, status: 200, code: 17 },
    options(path, allow),
    noMethod(`POST ${path}`, { path, http: true, answers: { allow } }),
  ]
}

function acceptedRows(secret: string, limit: number): readonly Row[] {
  const { authorization, collected, encoded, accepted } = makersOf(secret)
  return [
    accepted('a message', state),
    accepted('an object that is no message, as unknown', '{"hello":1}'),
    accepted('an empty object, as unknown', '{}'),
    accepted('Content-Type text/plain', state, { headers: { authorization, 'content-type': 'text/plain' } }),
    accepted('Content-Type of a form', state, {
      headers: { authorization, 'content-type': 'application/x-www-form-urlencoded' },
    }),
    accepted('the secret behind the collector scheme', state, { headers: collected }),
    accepted('an envelope at the root, by its shape', envelope),
    accepted('time as text, and in milliseconds', `${timed('"1708750724.983"')}${timed('1708750724983')}`, {
      headers: collected,
    }),
    accepted('several objects, nothing between', state + state),
    accepted('several objects, white space between', ` ${state}\r\n\t ${state}\n`),
    accepted(
      'several objects, pretty-printed',
      [state, state].map((one) => JSON.stringify(JSON.parse(one), null, 2)).join('\n'),
    ),
    accepted('an array', `[${state},${state}]`),
    accepted('gzip', zipped(state), { headers: encoded('gzip') }),
    accepted('gzip of a batch', zipped(state + state), { headers: encoded('gzip') }),
    accepted('x-gzip in any case', zipped(state), { headers: encoded(' X-GZIP ') }),
    accepted('identity', state, { headers: encoded('identity') }),
    accepted('a body exactly at the limit', state.padEnd(limit)),
    accepted('a body exactly at the limit after inflating', zipped(state.padEnd(limit)), { headers: encoded('gzip') }),
  ]
}

function secretRows(secret: string): readonly Row[] {
  const { accepted, encoded, authorization, basic, missing, scheme, wrong } = makersOf(secret)
  return [
    missing('no Authorization', { headers: {}, body: state, answers: { 'www-authenticate': 'Splunk' } }),
    missing('an empty Authorization', { headers: { authorization: '' }, body: state }),
    scheme('not of the expected scheme', { headers: { authorization: `Bearer ${secret}` }, body: state }),
    wrong('wrong secret', { headers: { authorization: 'wrong' }, body: state }),
    wrong('wrong secret behind the scheme', { headers: { authorization: 'Splunk wrong' }, body: state }),
    wrong('a part of the secret', { headers: { authorization: secret.slice(0, -1) }, body: state }),
    wrong('wrong secret before a wrong encoding', {
      headers: { ...encoded('br'), authorization: 'wrong' },
      body: 'no JSON',
    }),
    scheme('HTTP Basic at the root', { headers: basic(secret), body: state }),
    { ...missing('the secret in the query', { path: `/?token=${secret}`, headers: {}, body: state }), http: true },
    { ...accepted('any query', state, { path: '/?from=here', headers: { authorization } }), http: true },
  ]
}

function bodyRows(secret: string, limit: number): readonly Row[] {
  const { encoded, empty, noJson, noGzip, tooLarge, unsupported, refused } = makersOf(secret)
  return [
    empty('empty body', { body: '' }),
    empty('no body', {}),
    empty('blank body', { body: ' \r\n\t' }),
    empty('an empty list', { body: '[]' }),
    empty('nothing, gzipped', { body: zipped(''), headers: encoded('gzip') }),
    noJson('not JSON', { body: 'hello', number: 0 }),
    noJson('a form', { body: 'a=1&b=2', number: 0 }),
    ...['1', '"text"', 'true', 'null'].map((body) => noJson(`a bare scalar ${body}`, { body, number: 0 })),
    noJson('truncated', { body: state.slice(0, -9), number: 0 }),
    noJson('truncated after two events', { body: `${state}${state}${state.slice(0, -9)}`, number: 2 }),
    noJson('a scalar in a list', { body: `[${state},7,${state}]`, number: 1 }),
    noJson('a list in a list', { body: `[[${state}]]`, number: 0 }),
    noJson('a list that does not end', { body: `[${state},`, number: 1 }),
    refused(400, 6, 'time_invalid')('wrong time', { body: '{"event":{},"source":"A","time":"soon"}', number: 0 }),
    noGzip('broken gzip', { body: Uint8Array.from([0x1f, 0x8b, 8, 0, 1, 2, 3]), headers: encoded('gzip') }),
    noGzip('truncated gzip', { body: zipped(state).slice(0, -9), headers: encoded('gzip') }),
    noGzip('gzip of which only the length at its end is wrong', {
      body: tampered(zipped(state)),
      headers: encoded('gzip'),
    }),
    tooLarge('a body over the limit', { body: state.padEnd(limit + 1) }),
    tooLarge('a body over the limit in bytes only', { body: `{"x":"${'ü'.repeat(limit - 10)}"}` }),
    tooLarge('a body over the limit after inflating', {
      body: zipped(state.padEnd(limit + 1)),
      headers: encoded('gzip'),
    }),
    ...['br', 'deflate', 'zstd', 'gzip, gzip', 'aws-chunked', 'gzip;q=1'].map((encoding) =>
      unsupported(`encoding ${encoding}`, { headers: encoded(encoding), body: Uint8Array.from([1, 2, 3]) }),
    ),
  ]
}

function pathRows(secret: string): readonly Row[] {
  const { noMethod, noPath } = makersOf(secret)
  return [
    ...['/services/collector', '/services/collector/event', '/services/collector/event/1.0'].flatMap((path) =>
      collectorRows(secret, path),
    ),
    options('/', 'POST, OPTIONS'),
    ...['GET', 'PUT', 'PATCH', 'DELETE', 'PROPFIND'].map((method) =>
      noMethod(method, { method, http: true, answers: { allow: 'POST, OPTIONS' } }),
    ),
    ...[
      '/services/collector/raw',
      '/services/collector/ack',
      '/services/collector/event/2.0',
      '/services/collector//',
    ].map((path) => noPath(`POST ${path}`, { path, body: state })),
    noPath('an unknown path', { path: '/elsewhere', body: state, alone: true }),
    ...['/services/collector/health', '/services/collector/health/1.0', '/services/collector/health/'].flatMap((path) =>
      healthRows(secret, path),
    ),
  ]
}

function tampered(bytes: Bytes): Bytes {
  bytes[bytes.length - 1] = 1
  return bytes
}

const timed = (time: string): string => envelope.replace('1708750724.983', time)
