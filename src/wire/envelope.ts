import type { Door } from '../http/paths.ts'
import { readDecimal } from './decimal.ts'
import { asJsonObject, isPresent, type JsonObject } from './record.ts'
import { topicOf } from './topic.ts'

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

/** Whether a message is an HTTP Event Collector event, by its shape. */
export function isEnvelope(message: JsonObject): boolean {
  if (!isPresent(message['event'])) return false
  if (isPresent(message['source']) || isPresent(message['sourcetype'])) return true
  return (isPresent(message['time']) || isPresent(message['host'])) && topicOf(message) === undefined
}

/**
 * What the collector protocol refuses in one message. At the collector's own paths an `event` is required; its `time`
 * must be one wherever the envelope is recognised.
 */
export function checkEnvelope(message: object, door: Door): EnvelopeFault | undefined {
  const envelope = asJsonObject(message)
  if (door === 'collector') {
    if (!isPresent(envelope['event'])) return 'event_missing'
    if (envelope['event'] === '') return 'event_blank'
  } else if (!isEnvelope(envelope)) {
    return undefined
  }
  return isPresent(envelope['time']) && Number.isNaN(readEnvelopeTime(envelope['time'])) ? 'time_invalid' : undefined
}
