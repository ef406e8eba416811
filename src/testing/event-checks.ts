import type { Format } from '../events/event.ts'
import { syntheticVin } from '../service/fleet/vin.ts'
import { type Encodable, encode } from '../wire/encode.ts'
import { chunked } from './bodies.ts'
import { equal } from './expectations.ts'
import type { Conformance } from './inbox-conformance.ts'
import { message } from './message.ts'
import { authorizationOf, defaultPatienceMs, type PostedBody, posting } from './post.ts'
import type { HandledEvent, ReceiverUnderTest } from './receiver-conformance.ts'
import { slowChecks } from './slow-checks.ts'

const formats: readonly Format[] = ['service', 'vehicle_maker', 'event_collector']

/** Vehicles that no check before used, so that checks do not meet each other's events. */
let vehicles = 0
const nextVin = (): string => syntheticVin((Date.now() + vehicles++) % 1_000_000)

/** What becomes of messages, where the events that handlers were given can be asked for. */
export function eventChecks(
  subject: ReceiverUnderTest,
  events: () => Promise<readonly HandledEvent[]>,
): readonly Conformance[] {
  const { patienceMs = defaultPatienceMs } = subject
  const post = posting(subject)

  async function send(format: Format, body: PostedBody | (() => PostedBody), expected = 200, path = ''): Promise<void> {
    const headers = { authorization: authorizationOf(subject.secret, format) }
    const { status, text } = await post({ path, body, headers })
    if (status !== expected) throw new Error(`Expected the answer ${expected} and got ${status} ${text.slice(0, 300)}`)
  }
  const sendMessage = (sent: Encodable, format: Format): Promise<void> =>
    send(format, JSON.stringify(encode(sent, format)))

  /** The events of a vehicle, once there are `count`. */
  async function handled(vin: string, count: number): Promise<readonly HandledEvent[]> {
    const until = Date.now() + patienceMs
    for (;;) {
      const own = (await events()).filter((event) => event.vin === vin)
      if (own.length > count) throw new Error(`Expected ${count} events of a vehicle and got ${own.length}.`)
      if (own.length === count) return own
      if (Date.now() > until)
        throw new Error(`Expected ${count} events of a vehicle within ${patienceMs} ms and got ${own.length}.`)
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }

  const sameInAllFormats = Object.entries(message).map(([name, make]): Conformance => ({
    name: `A message made by message.${name} is the same event in all three formats, as it was sent`,
    async run() {
      const sent = { ...make(), vin: nextVin() }
      for (const format of formats) await sendMessage(sent, format)
      const got = await handled(sent.vin, formats.length)
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
        await send('service', JSON.stringify({ ...sent, data }))
        await send('vehicle_maker', JSON.stringify({ ...sent, data: list }))
        await send(
          'event_collector',
          JSON.stringify({ event: data, source: vin, sourcetype: 'vehicle:telemetry:data', time: 1_795_255_200.123 }),
        )
        const got = await handled(vin, 3)
        for (const event of got) {
          const { BatteryLevel, Gear, Locked, DoorState, Soc } = Object(event['data'])
          equal([BatteryLevel, Gear, Locked, Soc, event['undecoded']], [81.5, 'D', true, null, {}])
          equal([DoorState.driverFront, DoorState.trunkRear], [true, false])
        }
        equal(got[0]?.['createdAt'], sent.createdAt)
        equal(new Set(got.map(({ id }) => id)).size, 1)
      },
    },
    {
      name: 'What no topic fits is accepted, and an unknown event',
      async run() {
        const vin = nextVin()
        await send('service', JSON.stringify({ vin, credits: 12 }))
        const [event] = await handled(vin, 1)
        equal([event?.topic, event?.['reason']], ['unknown', 'no_topic'])
      },
    },
    {
      name: 'Text arrives as it was sent, wherever its bytes are cut',
      async run() {
        const sent = message.state('fährt 🚗 走る', { vin: nextVin() })
        await send('service', chunked(JSON.stringify(encode(sent, 'service'))))
        const [event] = await handled(sent.vin, 1)
        equal(event?.['state'], sent.state)
      },
    },
    {
      name: 'Messages of a VIN are handled once and in order of arrival, beside those of other VINs',
      async run() {
        const vins = Array.from({ length: 8 }, nextVin)
        const turns = Array.from({ length: 15 }, (_, turn) => turn)
        const drive = async (vin: string): Promise<void> => {
          for (const turn of turns) await sendMessage(message.data({ Odometer: turn }, { vin }), 'service')
        }
        await Promise.all(vins.map(drive))
        for (const vin of vins) {
          const got = await handled(vin, turns.length)
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
        await send('event_collector', body, 400, '/services/collector/event')
        const got = await handled(vin, 2)
        equal(
          got.map((event) => [Object(event['data']).BatteryLevel, Object(event['meta']).createdAtMissing === true]),
          [
            [50, false],
            [49, true],
          ],
        )
      },
    },
    ...slowChecks(subject, events),
  ]
}
