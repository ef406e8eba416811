import { gzipSync } from 'node:zlib'
import type { Format } from '../../../src/events/event.ts'
import { authorization } from '../../../src/wire/encode.ts'
import type { Case, Group, Request } from './cases.ts'
import type { Posted } from './post.ts'
import { dataIn, type SentMessage, type Session } from './session.ts'
import { timeCases } from './wire-cases.ts'

const collector: Format = 'event_collector'
const text = (sent: SentMessage, format: Format = collector): string => JSON.stringify(dataIn(format, sent))
const zipped = (body: string): Uint8Array<ArrayBuffer> => new Uint8Array(gzipSync(body))

/** `count` messages of one vehicle. */
function several(session: Session, count: number): readonly SentMessage[] {
  const vin = session.vin()
  return Array.from({ length: count }, () => session.message(vin))
}

/** Makes cases of one group that post a body with the right secret. */
const accepting =
  (group: Group, { secret }: Session) =>
  (
    name: string,
    messages: readonly SentMessage[],
    body: Posted['body'],
    { headers = {}, ...posted }: Posted = {},
  ): Case => {
    const usual = { 'content-type': 'application/json', authorization: authorization(secret, collector) }
    const all = body === undefined ? posted : { ...posted, body }
    const requests: readonly Request[] = [
      { posted: { ...all, headers: { ...usual, ...headers } }, format: collector, messages },
    ]
    return { group, name, expected: 'accepted', requests }
  }

export function* batchCases(session: Session): Generator<Case> {
  const accepted = accepting('batches', session)
  const three = (): readonly SentMessage[] => several(session, 3)
  const joined = (name: string, between: string): Case => {
    const sent = three()
    return accepted(name, sent, sent.map((each) => text(each)).join(between))
  }
  yield joined('three events, nothing between', '')
  yield joined('three events in lines', '\n')
  const pretty = three()
  const indented = pretty.map((each) => JSON.stringify(dataIn(collector, each), null, 2))
  yield accepted('three events, pretty-printed', pretty, indented.join('\n'))
  const list = three()
  yield accepted('a list of three events', list, `[${list.map((each) => text(each)).join()}]`)
  const own = three()
  yield accepted(
    'a list of three messages in the format service',
    own,
    `[${own.map((each) => text(each, 'service')).join()}]`,
  )
  const alone = session.message()
  yield accepted('a list of one event', [alone], `[${text(alone)}]`)
  yield* timeCases(session)
  const fleet = Array.from({ length: 20 }, () => session.message())
  yield accepted('events of 20 vehicles', fleet, fleet.map((each) => text(each)).join(''))
  const many = several(session, 200)
  yield accepted('200 events of one vehicle', many, many.map((each) => text(each)).join('\n'))
  const [first, last] = several(session, 2)
  if (first === undefined || last === undefined) return
  const foreign = '{"event":"a line of a log","sourcetype":"syslog","time":1}'
  yield accepted('a foreign event between two', [first, last], `${text(first)}${foreign}${text(last)}`)
}

const gzip = { headers: { 'content-encoding': 'gzip' } }

export function* gzipCases(session: Session): Generator<Case> {
  const accepted = accepting('gzip', session)
  const one = session.message()
  yield accepted('a message', [one], zipped(text(one)), gzip)
  const capitals = session.message()
  yield accepted('GZIP in capitals', [capitals], zipped(text(capitals)), { headers: { 'content-encoding': 'GZIP' } })
  const batch = several(session, 3)
  yield accepted('a batch', batch, zipped(batch.map((each) => text(each)).join('\n')), gzip)
  const members = several(session, 2)
  const parts = members.map((each) => zipped(text(each)))
  yield accepted('several members', members, new Uint8Array(Buffer.concat(parts)), gzip)
  const refused = (name: string, body: Uint8Array<ArrayBuffer>): Case => ({
    ...accepted(name, [], body, gzip),
    expected: 'refused',
  })
  yield refused('what is no gzip', Uint8Array.from([0x1f, 0x8b, 8, 0, 1, 2, 3]))
  yield refused('a truncated body', zipped(text(session.message())).slice(0, -9))
  yield refused('a body that inflates to 64 MiB', zipped(' '.repeat(64 * 1_048_576)))
}

const success = '{"text":"Success","code":0}'
const needsSuccess = (body: string): string | undefined =>
  body.trim() === success ? undefined : `relays send a batch again unless the body is ${success}`
export const needsCode = (body: string): string | undefined =>
  /^\s*\{[^]*"code"\s*:\s*\d+/.test(body) ? undefined : 'the body has no `code`, and a relay reads nothing else'

const below = '/services/collector'

/** The request that says whether the receiver has these paths at all. */
export function relayProbe(session: Session): Case {
  const sent = session.message()
  return accepting('relays', session)(`an event at ${below}/event`, [sent], text(sent), { path: `${below}/event` })
}

export function* relayCases(session: Session): Generator<Case> {
  const taken = accepting('relays', session)
  const accepted: typeof taken = (...of) => ({ ...taken(...of), problemWith: needsSuccess })
  const { secret } = session
  for (const path of [below, `${below}/event/1.0`]) {
    const sent = session.message()
    yield accepted(`an event at ${path}`, [sent], text(sent), { path })
  }
  const path = `${below}/event`
  const plain = (name: string, method: string, at: string): Case => ({
    group: 'relays',
    name,
    expected: 'accepted',
    requests: [{ posted: { method, path: at, headers: {} }, messages: [] }],
  })
  yield plain('OPTIONS without a secret', 'OPTIONS', path)
  yield plain('GET …/health without a secret', 'GET', `${below}/health`)
  for (const type of ['text/plain', 'application/x-www-form-urlencoded']) {
    const sent = session.message()
    yield accepted(`Content-Type ${type}`, [sent], text(sent), { path, headers: { 'content-type': type } })
  }
  if (!secret.includes(' ')) {
    const [basic, scheme] = [session.message(), session.message()]
    const password = { authorization: `Basic ${btoa(`x:${secret}`)}` }
    yield accepted('HTTP Basic with the secret as password', [basic], text(basic), { path, headers: password })
    const inCapitals = { authorization: `SPLUNK ${secret}` }
    yield accepted('the scheme in capitals', [scheme], text(scheme), { path, headers: inCapitals })
  }
  const large = several(session, 2)
  const filler = JSON.stringify({ event: 'x'.repeat(2_000_000), sourcetype: 'syslog' })
  yield accepted('a batch of 2 MB', large, large.map((each) => text(each)).join(filler), { path })
  for (const [name, given] of [
    ['a wrong secret', 'Splunk wrong'],
    ['an empty secret', 'Splunk '],
  ] as const) {
    const wrong = taken(name, [], text(session.message()), { path, headers: { authorization: given } })
    yield { ...wrong, expected: 'unauthorized', problemWith: needsCode }
  }
  const before = several(session, 2)
  const broken = taken(
    'a broken event: those before it count',
    before,
    `${before.map((each) => text(each)).join('')}{"event":`,
    { path },
  )
  yield { ...broken, expected: 'refused', isKept: true, problemWith: needsCode }
}
