import type { Door } from '../inbox/inbox.ts'
import { readDecimal } from './decimal.ts'
import type { JsonObject } from './record.ts'

/** What is wrong with the envelope of a collector event. */
export type EnvelopeFault = 'event_missing' | 'event_blank' | 'time_invalid'

const MILLISECONDS_FROM = 1e11
const LAST_DATE_MS = 8.64e15

/**
 * The `time` of a collector event in milliseconds: seconds as a number or as decimal text; from 1e11 on they are
 * milliseconds already. NaN when it is no time, or none that a `Date` can hold.
 */
export function readEnvelopeTime(time: unknown): number {
  const seconds = typeof time === 'number' ? time : typeof time === 'string' ? readDecimal(time) : Number.NaN
  const ms = Math.round(seconds >= MILLISECONDS_FROM ? seconds : seconds * 1000)
  return Math.abs(ms) <= LAST_DATE_MS ? ms + 0 : Number.NaN
}

function present(value: unknown): boolean {
  return value !== undefined && value !== null
}

/** Whether a message is an HTTP Event Collector event, by its shape. */
export function isEnvelope(message: JsonObject): boolean {
  if (!present(message['event'])) return false
  if (present(message['source']) || present(message['sourcetype'])) return true
  return (present(message['time']) || present(message['host'])) && !hasTopic(message)
}

/** Whether a message has a key that names a topic of the service. */
export function hasTopic(message: JsonObject): boolean {
  return (
    present(message['state']) ||
    present(message['data']) ||
    present(message['errors']) ||
    present(message['alerts']) ||
    present(message['networkInterface']) ||
    present(message['vehicle_data'])
  )
}

/**
 * What the collector protocol refuses in one message. At the collector's own paths an `event` is required; its `time`
 * must be one wherever the envelope is recognised.
 */
export function checkEnvelope(message: object, door: Door): EnvelopeFault | undefined {
  const envelope = message as JsonObject
  if (door === 'collector') {
    if (!present(envelope['event'])) return 'event_missing'
    if (envelope['event'] === '') return 'event_blank'
  } else if (!isEnvelope(envelope)) {
    return undefined
  }
  return present(envelope['time']) && Number.isNaN(readEnvelopeTime(envelope['time'])) ? 'time_invalid' : undefined
}
