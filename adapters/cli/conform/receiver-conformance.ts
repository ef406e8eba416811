import type { Format } from '../../../src/events/event.ts'
import { syntheticVin } from '../../../src/service/fleet/vin.ts'
import { authorization, type Encodable, encode } from '../../../src/wire/encode.ts'
import { payloadMark } from './answer-table.ts'
import { type AnswerCase, answerCases, chunked } from './answer-cases.ts'
import { type Conformance, equal } from '../../../src/testing/expectations.ts'
import { message } from '../../../src/testing/message.ts'
import { type Answered, defaultPatienceMs, type PostedBody, posting } from './post.ts'

/** A running receiver to check. */
export interface ReceiverUnderTest {
  /** The URL to post messages to, for instance `http://localhost:3000/telemetry`. */
  readonly url: string
  /** The secret of the receiver, without a scheme word. */
  readonly secret: string
  /** `limits.bodyBytes` of the receiver. Default 1,048,576. */
  readonly bodyBytes?: number
  /**
   * Resolves to the events that the handlers received so far, as JSON, in the order in which the handlers were done. With it,
   * the suite also checks the events; without it, only the answers.
   */
  readonly events?: () => Promise<readonly HandledEvent[]>
  /**
   * VINs whose handlers take a few hundred milliseconds, waiting or computing. The suite checks that the answer does not wait
   * for them. Needs `events`. Not for a receiver with `ack: 'handled'`. Default: none.
   */
  readonly slowVins?: readonly string[]
  /** The longest wait for an answer, and then for the handlers, in milliseconds. Default 15,000. */
  readonly patienceMs?: number
}

/** An event as `JSON.stringify` writes it. */
export interface HandledEvent {
  readonly topic: string
  readonly vin?: string
  readonly format: string | null
  readonly id: string
  readonly [key: string]: unknown
}

/**
 * The checks that every receiver must pass, over HTTP, whatever serves or mounts it.
 *
 * Specification: "Webhook delivery", "Topics", "Authentication of outgoing webhook messages".
 */
export function receiverConformance(subject: ReceiverUnderTest): readonly Conformance[] {
  const { events } = subject
  return [...answerChecks(subject), ...(events === undefined ? [] : eventChecks(subject, events))]
}

const success = '{"text":"Success","code":0}'

/** Checks every case of `docs/http.md`. */
function answerChecks(subject: ReceiverUnderTest): readonly Conformance[] {
  const { secret, bodyBytes = 1_048_576 } = subject
  const post = posting(subject)
  return answerCases(secret, bodyBytes).map((known) => ({
    name: known.name,
    async run() {
      const answered = await post(known)
      for (const problem of problemsWith(known, answered, secret))
        throw new Error(`${problem} ${described(known, answered)}`)
    },
  }))
}

/** The problems with an answer, the worst first. */
function* problemsWith(known: AnswerCase, { status, headers, text }: Answered, secret: string): Generator<string> {
  const shown = text + [...headers].flat().join()
  if (shown.includes(secret)) yield 'The answer shows the secret.'
  if (shown.includes(payloadMark)) yield 'The answer shows what was posted.'
  if (status !== known.status) yield 'The status is wrong.'
  if (status === 405 && !headers.get('allow')) yield 'The answer has no Allow header.'
  if (known.code === undefined) return

  if (!/^application\/json\b/.test(headers.get('content-type') ?? ''))
    yield 'The Content-Type of the answer is not JSON.'
  const body = parsed(text)
  if (body === undefined) yield 'The answer is not JSON.'
  if (known.code === 0 && text !== success) yield `The answer is not exactly ${success}.`
  if (body?.['code'] !== known.code) yield 'The code is wrong.'
  if (body?.['error'] !== known.error) yield 'The error is wrong.'
  if (known.error !== undefined && typeof body?.['text'] !== 'string') yield 'The refusal has no text.'
  if (known.number !== undefined && body?.['invalid-event-number'] !== known.number)
    yield 'The number of the broken event is wrong.'
}

function parsed(text: string): Record<string, unknown> | undefined {
  try {
    return Object(JSON.parse(text))
  } catch {
    return undefined
  }
}

function described(known: AnswerCase, { status, text }: Answered): string {
  const { code, error, number } = known
  const details = Object.entries({ code, error, 'invalid-event-number': number })
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `, ${name} ${value}`)
  return `Expected ${known.status}${details.join('')}, and got ${status} ${text.slice(0, 300)}`
}

const formats: readonly Format[] = ['service', 'vehicle_maker', 'event_collector']

/** Each check uses vehicles of its own, so that it does not see the events of another check. */
let vehicles = 0
const nextVin = (): string => syntheticVin((Date.now() + vehicles++) % 1_000_000)

/** How the checks of events post, and wait for what is handled. */
class Handling {
  readonly #post: ReturnType<typeof posting>
  readonly #secret: string
  readonly #patienceMs: number
  readonly #events: () => Promise<readonly HandledEvent[]>

  constructor(subject: ReceiverUnderTest, events: () => Promise<readonly HandledEvent[]>) {
    this.#post = posting(subject)
    this.#secret = subject.secret
    this.#patienceMs = subject.patienceMs ?? defaultPatienceMs
    this.#events = events
  }

  async send(format: Format, body: PostedBody | (() => PostedBody), expected = 200, path = ''): Promise<void> {
    const headers = { authorization: authorization(this.#secret, format) }
    const { status, text } = await this.#post({ path, body, headers })
    if (status !== expected) throw new Error(`Expected the answer ${expected} and got ${status} ${text.slice(0, 300)}`)
  }

  sendMessage(sent: Encodable, format: Format): Promise<void> {
    return this.send(format, JSON.stringify(encode(sent, format)))
  }

  /** Waits for `count` events of a vehicle. */
  async handled(vin: string, count: number): Promise<readonly HandledEvent[]> {
    const until = Date.now() + this.#patienceMs
    for (;;) {
      const own = (await this.#events()).filter((event) => event.vin === vin)
      if (own.length > count) throw new Error(`Expected ${count} events of a vehicle and got ${own.length}.`)
      if (own.length === count) return own
      if (Date.now() > until)
        throw new Error(`Expected ${count} events of a vehicle within ${this.#patienceMs} ms and got ${own.length}.`)
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }
}

/** Checks the events that handlers receive. */
function eventChecks(
  subject: ReceiverUnderTest,
  events: () => Promise<readonly HandledEvent[]>,
): readonly Conformance[] {
  const to = new Handling(subject, events)
  return [...formatChecks(to), ...contentChecks(to), ...laneChecks(to), ...slowChecks(subject, events)]
}

function formatChecks(to: Handling): readonly Conformance[] {
  const sameInAllFormats = Object.entries(message).map(([name, make]): Conformance => ({
    name: `message.${name} arrives as the same event in all three formats`,
    async run() {
      const sent = { ...make(), vin: nextVin() }
      for (const format of formats) await to.sendMessage(sent, format)
      const got = await to.handled(sent.vin, formats.length)
      // Only `data` differs between the first two formats.
      const read = sent.topic === 'data' ? formats : ['service', 'service', 'event_collector']
      equal(
        got.map(({ format }) => format),
        read,
      )
      equal(new Set(got.map(({ id }) => id)).size, 1)
      for (const event of got) {
        equal(Object.fromEntries(Object.keys(sent).map((key) => [key, event[key]])), sent)
        equal(Date.parse(String(event['at'])), Date.parse(sent.createdAt))
      }
    },
  }))

  return [
    ...sameInAllFormats,
    {
      name: 'Values of data have the type of the catalogue, in every format',
      async run() {
        const vin = nextVin()
        const data = { BatteryLevel: '81.5', Gear: 'ShiftStateD', Locked: 'true', DoorState: 'DriverFront', Soc: null }
        const sent = { vin, createdAt: '2026-11-21T10:00:00.123456789Z' }
        const list = Object.entries(data).map(([key, text]) => ({
          key,
          value: text === null ? { invalid: true } : { stringValue: text },
        }))
        await to.send('service', JSON.stringify({ ...sent, data }))
        await to.send('vehicle_maker', JSON.stringify({ ...sent, data: list }))
        await to.send(
          'event_collector',
          JSON.stringify({ event: data, source: vin, sourcetype: 'vehicle:telemetry:data', time: 1_795_255_200.123 }),
        )
        const got = await to.handled(vin, 3)
        for (const event of got) {
          const { BatteryLevel, Gear, Locked, DoorState, Soc } = Object(event['data'])
          equal([BatteryLevel, Gear, Locked, Soc, event['undecoded']], [81.5, 'D', true, null, {}])
          equal([DoorState.driverFront, DoorState.trunkRear], [true, false])
        }
        equal(got[0]?.['createdAt'], sent.createdAt)
        equal(new Set(got.map(({ id }) => id)).size, 1)
      },
    },
  ]
}

function contentChecks(to: Handling): readonly Conformance[] {
  return [
    {
      name: 'A message of no topic is accepted, and is an unknown event',
      async run() {
        const vin = nextVin()
        await to.send('service', JSON.stringify({ vin, credits: 12 }))
        const [event] = await to.handled(vin, 1)
        equal([event?.topic, event?.['reason']], ['unknown', 'no_topic'])
      },
    },
    {
      name: 'Text arrives as it was sent when a chunk ends inside a character',
      async run() {
        const sent = message.state('fährt 🚗 走る', { vin: nextVin() })
        await to.send('service', chunked(JSON.stringify(encode(sent, 'service'))))
        const [event] = await to.handled(sent.vin, 1)
        equal(event?.['state'], sent.state)
      },
    },
  ]
}

function laneChecks(to: Handling): readonly Conformance[] {
  return [
    {
      name: 'Messages of a VIN are handled once and in order of arrival, while other VINs send as well',
      async run() {
        const vins = Array.from({ length: 8 }, nextVin)
        const turns = Array.from({ length: 15 }, (_, turn) => turn)
        const drive = async (vin: string): Promise<void> => {
          for (const turn of turns) await to.sendMessage(message.data({ Odometer: turn }, { vin }), 'service')
        }
        await Promise.all(vins.map(drive))
        for (const vin of vins) {
          const got = await to.handled(vin, turns.length)
          equal(
            got.map((event) => Object(event['data']).Odometer),
            turns,
          )
        }
      },
    },
    {
      name: 'Events of a batch before a broken one are handled, and nothing carries over from one to the next',
      async run() {
        const vin = nextVin()
        const labelled = { source: vin, sourcetype: 'vehicle:telemetry:data' }
        const first = { ...labelled, event: { BatteryLevel: 50 }, time: 1_795_255_200 }
        const second = { ...labelled, event: { BatteryLevel: 49 } }
        const foreign = { event: 'a line of a log', sourcetype: 'syslog' }
        const body = `${JSON.stringify(first)}${JSON.stringify(foreign)}\n${JSON.stringify(second)} {"event":`
        await to.send('event_collector', body, 400, '/services/collector/event')
        const got = await to.handled(vin, 2)
        equal(
          got.map((event) => [Object(event['data']).BatteryLevel, Object(event['meta']).createdAtMissing === true]),
          [
            [50, false],
            [49, true],
          ],
        )
      },
    },
  ]
}

/** The answer may take this part of the time until the handler is done. It is a ratio, because machines differ in speed. */
const answeredBy = 0.5
const tries = 3

/** Checks that the answer is sent before a slow handler is done. */
function slowChecks(
  subject: ReceiverUnderTest,
  events: () => Promise<readonly HandledEvent[]>,
): readonly Conformance[] {
  const { patienceMs = defaultPatienceMs } = subject
  const post = posting(subject)
  const count = async (vin: string): Promise<number> => (await events()).filter((event) => event.vin === vin).length

  /** Posts a message. Resolves to the part of the time until the handler was done that passed before the answer. */
  async function waited(vin: string): Promise<number> {
    const before = await count(vin)
    const body = JSON.stringify(encode(message.state('online', { vin }), 'service'))
    const postedAt = performance.now()
    const { status } = await post({ body, headers: { authorization: authorization(subject.secret, 'service') } })
    const answerMs = performance.now() - postedAt
    if (status !== 200) throw new Error(`Expected the answer 200 and got ${status}.`)
    while ((await count(vin)) === before) {
      if (performance.now() - postedAt > patienceMs)
        throw new Error(`The handler was not done within ${patienceMs} ms.`)
      await new Promise((resolve) => setTimeout(resolve, 1))
    }
    return answerMs / (performance.now() - postedAt)
  }

  return (subject.slowVins ?? []).map((vin) => ({
    name: `The answer does not wait for the slow handler of ${vin}`,
    async run() {
      const parts: number[] = []
      while (parts.length < tries) {
        const part = await waited(vin)
        if (part < answeredBy) return
        parts.push(Math.round(part * 100))
      }
      throw new Error(
        `Expected an answer within ${answeredBy * 100} % of the time until the handler was done. ${tries} answers took ${parts.join(' %, ')} %.`,
      )
    },
  }))
}
