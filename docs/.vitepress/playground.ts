// What the playground shows of a body. It runs the receiver of this package in the page, and nothing leaves the page.
import { createReceiver } from '../../src/index.ts'
import { normalize, split, type WireEvent } from '../../src/normalize.ts'

export interface Sample {
  readonly name: string
  readonly body: string
}

const vin = '0FLEETV14T0000004'
const createdAt = '2026-11-21T10:00:00.983607402Z'
const text = (message: object): string => JSON.stringify(message, undefined, 2)

export const samples: readonly Sample[] = [
  {
    name: 'service',
    body: text({
      vin,
      createdAt,
      data: { BatteryLevel: '81.488', Gear: 'D', Locked: true, Location: { latitude: 52.4585, longitude: -1.8052 } },
    }),
  },
  {
    name: 'vehicle_maker',
    body: text({
      vin,
      createdAt,
      data: [
        { key: 'BatteryLevel', value: { stringValue: '81.488' } },
        { key: 'Gear', value: { shiftStateValue: 'ShiftStateD' } },
        { key: 'VehicleSpeed', value: { invalid: true } },
      ],
      isResend: false,
    }),
  },
  {
    name: 'event_collector',
    body: text({
      time: 1795255200.983,
      host: 'localhost',
      source: vin,
      sourcetype: 'vehicle:telemetry:data',
      event: { BatteryLevel: 81.5, Locked: false },
    }),
  },
  {
    name: 'undecoded and unknown',
    body: `${text({ vin, createdAt, data: { BatteryLevel: 'a lot', Gear: 'D' } })}\n${text({ vin, createdAt, weather: 'rain' })}`,
  },
  { name: 'a broken body', body: `{"vin": "${vin}", "createdAt": "${createdAt}", "state": "onl` },
]

export interface ShownEvent {
  readonly title: string
  /** The event as a handler gets it, without `raw`. */
  readonly event: string
  /** The values that did not read as the type of their field. */
  readonly undecoded: string | undefined
  /** Why the event is `unknown`. */
  readonly reason: string | undefined
}

export interface Reading {
  readonly status: number
  readonly answer: string
  readonly events: readonly ShownEvent[]
}

const reasons: Readonly<Record<string, string>> = {
  no_topic: 'no key names a topic',
  payload_mismatch: 'the payload has a shape that its topic never has',
  vin_missing: 'no VIN',
  format_mismatch: 'another format than the option `format` names',
  foreign_event: 'a collector event that is not telemetry',
}

const quiet = { debug() {}, info() {}, warn() {}, error() {} }

/** Posts a body to a receiver with the right secret, and reads its messages. */
export async function readBody(body: string): Promise<Reading> {
  const receiver = createReceiver({ secret: 'playground', log: quiet })
  const request = new Request('http://receiver.invalid/', {
    method: 'POST',
    headers: { Authorization: 'playground' },
    body,
  })
  const answer = await receiver.fetch(request)
  return {
    status: answer.status,
    answer: await answer.text(),
    events: split(body).pieces.flatMap(({ value }) => normalize(value).map(shownEvent)),
  }
}

function shownEvent(event: WireEvent): ShownEvent {
  const { topic, createdAt, format, id, meta } = event
  const undecoded = event.topic === 'data' ? event.undecoded : {}
  const reason = event.topic === 'unknown' ? event.reason : undefined
  return {
    title: topic,
    event: text({ topic, vin: event.vin, createdAt, format, id, meta, ...payloadOf(event) }),
    undecoded: Object.keys(undecoded).length === 0 ? undefined : text(undecoded),
    reason: reason === undefined ? undefined : `${reason}: ${reasons[reason] ?? ''}`,
  }
}

function payloadOf(event: WireEvent): object {
  switch (event.topic) {
    case 'data':
      return { data: event.data }
    case 'state':
      return { state: event.state }
    case 'vehicle_data':
      return { vehicleData: event.vehicleData }
    case 'alerts':
      return { alerts: event.alerts }
    case 'errors':
      return { errors: event.errors }
    case 'connectivity':
      return { status: event.status, networkInterface: event.networkInterface, connectionId: event.connectionId }
    case 'unknown':
      return { reason: event.reason }
  }
}
