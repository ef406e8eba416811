import type { Format } from '../events/event.ts'
import { syntheticVin } from '../fleet/vin.ts'
import { encode } from '../wire/encode.ts'
import { answerChecks } from './answer-checks.ts'
import { equal } from './expectations.ts'
import type { Conformance } from './inbox-conformance.ts'
import { message } from './message.ts'
import { authorizationOf, posting } from './post.ts'

/** A receiver that runs somewhere. */
export interface ReceiverUnderTest {
  /** Where it takes messages, for instance `http://localhost:3000/telemetry`. */
  readonly url: string
  /** What is set as `auth` of the webhook; without a scheme word. */
  readonly secret: string
  /** `limits.bodyBytes` of the receiver, when it is not the default. */
  readonly bodyBytes?: number
  /**
   * The events that its handlers were given so far, as JSON, in the order in which the handlers were done. Where it can be
   * asked, what becomes of messages is checked as well.
   */
  readonly events?: () => Promise<readonly HandledEvent[]>
}

/** An event as `JSON.stringify` writes it. */
export interface HandledEvent {
  readonly topic: string
  readonly vin?: string
  readonly format: string | null
  readonly id: string
  readonly [key: string]: unknown
}

const formats: readonly Format[] = ['service', 'vehicle_maker', 'event_collector']

/** Vehicles that no check before used, so that checks do not meet each other's events. */
let vehicles = 0
const nextVin = (): string => syntheticVin((Date.now() + vehicles++) % 1_000_000)

/**
 * What every receiver must do, as code, over HTTP: for the author of an adapter, and for whoever mounts a receiver and wants
 * to know that nothing before it changes what arrives. Runs under any test runner.
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import { serve } from 'fleethook/node'
 * import { receiverConformance } from 'fleethook/testing'
 *
 * const secret = 'a-long-random-value'
 * const server = await serve(createReceiver({ secret }), { port: 3000 })
 * for (const { name, run } of receiverConformance({ url: server.url, secret })) {
 *   await run()
 *   console.log('ok', name)
 * }
 * await server.close()
 * ```
 *
 * Specification: "Webhook delivery", "Topics", "Authentication of outgoing webhook messages".
 */
export function receiverConformance(subject: ReceiverUnderTest): readonly Conformance[] {
  const { events } = subject
  return [...answerChecks(subject), ...(events === undefined ? [] : eventChecks(subject, events))]
}

function eventChecks(
  subject: ReceiverUnderTest,
  events: () => Promise<readonly HandledEvent[]>,
): readonly Conformance[] {
  const post = posting(subject)
  const send = (format: Format, body: string, path = ''): Promise<{ readonly status: number }> =>
    post({ path, body, headers: { authorization: authorizationOf(subject.secret, format) } })

  /** The events of a vehicle, once there are `count`. */
  async function handled(vin: string, count: number): Promise<readonly HandledEvent[]> {
    const until = Date.now() + 10_000
    for (;;) {
      const own = (await events()).filter((event) => event.vin === vin)
      if (own.length >= count) return own
      if (Date.now() > until)
        throw new Error(`Expected ${count} events of a vehicle within 10 seconds and got ${own.length}.`)
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  }

  const sameInAllFormats = Object.entries(message).map(([name, make]): Conformance => ({
    name: `A message made by message.${name} is the same event in all three formats`,
    async run() {
      const vin = nextVin()
      const sent = { ...make(), vin }
      for (const format of formats) equal((await send(format, JSON.stringify(encode(sent, format)))).status, 200)
      const got = await handled(vin, formats.length)
      equal([...new Set(got.map((event) => event.topic))], [sent.topic])
      equal(new Set(got.map((event) => event.id)).size, 1)
    },
  }))

  return [
    ...sameInAllFormats,
    {
      name: 'Values of data have the type of the catalogue, in every format',
      async run() {
        const vin = nextVin()
        const data = { BatteryLevel: '81.5', Gear: 'ShiftStateD', Locked: 'true', DoorState: 'DriverFront' }
        const sent = { vin, createdAt: '2026-11-21T10:00:00.123456789Z' }
        const list = Object.entries(data).map(([key, stringValue]) => ({ key, value: { stringValue } }))
        await send('service', JSON.stringify({ ...sent, data }))
        await send('vehicle_maker', JSON.stringify({ ...sent, data: list }))
        await send(
          'event_collector',
          JSON.stringify({ event: data, source: vin, sourcetype: 'vehicle:telemetry:data', time: 1_795_255_200.123 }),
        )
        for (const event of await handled(vin, 3)) {
          const { BatteryLevel, Gear, Locked } = Object(event['data'])
          equal([BatteryLevel, Gear, Locked, event['undecoded']], [81.5, 'D', true, {}])
        }
      },
    },
    {
      name: 'What no topic fits is accepted, and an unknown event',
      async run() {
        const vin = nextVin()
        equal((await send('service', JSON.stringify({ vin, credits: 12 }))).status, 200)
        const [event] = await handled(vin, 1)
        equal([event?.topic, event?.['reason']], ['unknown', 'no_topic'])
      },
    },
    {
      name: 'Messages of a VIN are handled in order of arrival, beside those of other VINs',
      async run() {
        const vins = [nextVin(), nextVin(), nextVin(), nextVin()]
        const turns = Array.from({ length: 15 }, (_, turn) => turn)
        const drive = async (vin: string): Promise<void> => {
          for (const turn of turns) {
            const sent = message.data({ Odometer: turn }, { vin })
            equal((await send('service', JSON.stringify(encode(sent, 'service')))).status, 200)
          }
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
        const first = {
          event: { BatteryLevel: 50 },
          source: vin,
          sourcetype: 'vehicle:telemetry:data',
          time: 1_795_255_200,
        }
        const second = { ...first, event: { BatteryLevel: 49 }, time: undefined }
        const foreign = { event: 'a line of a log', sourcetype: 'syslog' }
        const body = `${JSON.stringify(first)}${JSON.stringify(foreign)}\n${JSON.stringify(second)} {"event":`
        equal((await send('event_collector', body, '/services/collector/event')).status, 400)
        const got = await handled(vin, 2)
        equal(
          got.map((event) => Object(event['data']).BatteryLevel),
          [50, 49],
        )
        equal(Object(got[0]?.['meta']).createdAtMissing === true, false)
        equal(Object(got[1]?.['meta']).createdAtMissing, true)
      },
    },
  ]
}
