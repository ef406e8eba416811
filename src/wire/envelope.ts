import type { Meta, WireTopic } from '../events/event.ts'
import type { Door } from '../http/paths.ts'
import { asJsonObject, emptyObject, isPresent, isTextList, type JsonObject, WireObject } from './record.ts'
import { readTime } from './scalars.ts'

/** The first of these top-level keys that a message has names its topic. */
export function topicOf(message: JsonObject): WireTopic | undefined {
  if (isPresent(message['state'])) return 'state'
  if (isPresent(message['data'])) return 'data'
  if (isPresent(message['errors'])) return 'errors'
  if (isPresent(message['alerts'])) return 'alerts'
  if (isPresent(message['networkInterface'])) return 'connectivity'
  if (isPresent(message['vehicle_data'])) return 'vehicle_data'
  return undefined
}

export const wireTopics: readonly WireTopic[] = ['data', 'state', 'vehicle_data', 'alerts', 'errors', 'connectivity']

const topics: ReadonlyMap<string, WireTopic> = /* @__PURE__ */ new Map(wireTopics.map((topic) => [topic, topic]))

const middle = ':telemetry:'

/** The topic that a `sourcetype` such as `vehicle:telemetry:data` names. */
export function topicOfLabel(sourcetype: string): WireTopic | undefined {
  const text = sourcetype.toLowerCase()
  const at = text.indexOf(':')
  return at > 0 && text.startsWith(middle, at) ? topics.get(text.slice(at + middle.length)) : undefined
}

/** The rule of the collector protocol that an event breaks. */
export type EnvelopeFault = 'event_missing' | 'event_blank' | 'time_invalid'

/** The `time` of a collector event in milliseconds: a number in any unit, or one as text. NaN: not a time. */
export function readEnvelopeTime(time: unknown): number {
  return typeof time === 'number' || (typeof time === 'string' && !Number.isNaN(Number(time)))
    ? readTime(time)
    : Number.NaN
}

/** Whether a message has the shape of an HTTP Event Collector event. */
export function isEnvelope(message: JsonObject): boolean {
  if (!isPresent(message['event'])) return false
  if (isPresent(message['source']) || isPresent(message['sourcetype'])) return true
  return (isPresent(message['time']) || isPresent(message['host'])) && topicOf(message) === undefined
}

/**
 * The rule of the collector protocol that one message breaks; `undefined` when it breaks none. An `event` is required on
 * the collector's own paths. A `time` must be a time wherever the envelope is recognized.
 *
 * @example
 * ```ts
 * import { checkEnvelope } from 'fleethook/normalize'
 *
 * console.log(checkEnvelope({ time: 1795255200, event: '' }, 'collector')) // event_blank
 * ```
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

/** Whether a key may go to `meta` with this value. A key to which `Meta` gives a type must have a value of that type. */
function fits(key: string, value: unknown): boolean {
  switch (key) {
    case 'host':
    case 'sourcetype':
    case 'connectionId':
      return typeof value === 'string'
    case 'isResend':
    case 'isCache':
      return typeof value === 'boolean'
    case 'changed':
      return isTextList(value)
    // Only fleethook sets them.
    case 'secret':
    case 'createdAtMissing':
      return false
  }
  return value !== undefined
}

type OpenMeta = { -readonly [Key in keyof Meta]: Meta[Key] }

function withKey(meta: Meta, key: string, value: unknown): Meta {
  const open: OpenMeta = meta === emptyObject ? new WireObject<never>() : meta
  open[key] = value
  return open
}

export function messageMeta(meta: Meta, message: JsonObject, topic: WireTopic | undefined): Meta {
  let added = meta
  // The payload of `connectivity` has no key of its own.
  const payload = topic === 'connectivity' ? 'networkInterface' : topic
  for (const key in message) {
    if (key === payload || key === 'vin' || key === 'createdAt') continue
    if (topic === 'connectivity' && key === 'status') continue
    if (fits(key, message[key])) added = withKey(added, key, message[key])
  }
  return added
}

/** What a collector event carries beside its event. `host` and `sourcetype` by name: the loop would be slower. */
export function envelopeMeta(envelope: JsonObject): Meta {
  const { host, sourcetype } = envelope
  let added: Meta = emptyObject
  if (typeof sourcetype === 'string') {
    const open: OpenMeta = new WireObject<never>()
    if (typeof host === 'string') open.host = host
    open.sourcetype = sourcetype
    added = open
  }
  for (const key in envelope) {
    switch (key) {
      case 'event':
      case 'source':
      case 'time':
      case 'sourcetype':
        continue
    }
    if (key === 'host' && added !== emptyObject) continue
    if (fits(key, envelope[key])) added = withKey(added, key, envelope[key])
  }
  return added
}

export function undatedMeta(meta: Meta): Meta {
  return withKey(meta, 'createdAtMissing', true)
}

export function secretMeta(meta: Meta, place: number): Meta {
  return withKey(meta, 'secret', place)
}
