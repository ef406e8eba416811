import type { Format, Meta, UnknownReason, WireEvent, WireTopic } from '../events/event.ts'
import type { BuiltInFields, ExtendedBy, FieldCatalogue } from '../events/fields.ts'
import type { FieldRules } from './data.ts'
import { isEnvelope, readEnvelopeTime } from './envelope.ts'
import { readInstant } from './instant.ts'
import { isoText } from './iso.ts'
import { envelopeMeta, messageMeta, undatedMeta } from './meta.ts'
import { nothing } from './named.ts'
import { payloadIn, readPayload } from './payload.ts'
import { fieldReaders } from './reader.ts'
import { Reading } from './reading.ts'
import { isJsonObject, type JsonObject } from './record.ts'
import { topicOf, topicOfLabel } from './topic.ts'

/** Options of {@link createNormalizer}. */
export interface NormalizerOptions<Fields extends FieldCatalogue = FieldCatalogue> {
  /** `'auto'` (the default) reads each message by its shape; a pinned format that meets another yields `unknown`. */
  readonly format?: 'auto' | Format
  /** `true` (the default): values of `data` have the type of the catalogue, or are `null`. `false`: as they were sent. */
  readonly decode?: boolean
  /** Fields of the user's own, or other types for known ones. */
  readonly fields?: Fields
  /**
   * Called for each value that did not read as the type of its field, with the field's name and what came instead: the
   * name of the wrapper, or `string`, `number`, `boolean`, `object`, `array`, or `empty` for `{}`.
   */
  readonly onDrift?: (field: string, seen: string) => void
}

/** Reads messages as events. */
export interface Normalizer<Fields extends FieldCatalogue = BuiltInFields> {
  /**
   * Reads one parsed message as one event. Never throws and never changes the message, which stays in the event as `raw`.
   * `receivedAt` is a `Date` or milliseconds since the epoch; now when it is left out.
   */
  normalize(message: object, receivedAt?: Date | number): WireEvent<Fields>
}

/** A message, as far as it is known before its payload is read. */
interface Draft {
  readonly raw: JsonObject
  readonly receivedAt: Date
  readonly format: Format
  readonly vin: unknown
  /** The time as it was sent, when it was sent as text. */
  readonly createdAt: string | undefined
  /** NaN when the message has no readable time. */
  readonly createdMs: number
  readonly meta: Meta
}

function isVin(vin: unknown): vin is string {
  return typeof vin === 'string' && vin !== ''
}

function begin(topic: WireTopic | 'unknown', draft: Draft): Reading {
  const { createdMs, receivedAt } = draft
  const dated = !Number.isNaN(createdMs)
  const at = new Date(dated ? createdMs : receivedAt.getTime())
  const createdAt = dated && draft.createdAt !== undefined ? draft.createdAt : isoText(at.getTime())
  const event = new Reading(topic, createdAt, at, receivedAt, draft.format)
  if (isVin(draft.vin)) event.vin = draft.vin
  return event
}

function end(event: Reading, draft: Draft): Reading {
  event.meta = Number.isNaN(draft.createdMs) ? undatedMeta(draft.meta) : draft.meta
  event.raw = draft.raw
  return event
}

function unknown(reason: UnknownReason, draft: Draft): Reading {
  const event = begin('unknown', draft)
  event.reason = reason
  return end(event, draft)
}

function known(topic: WireTopic, payload: unknown, draft: Draft, rules: FieldRules): Reading {
  if (!isVin(draft.vin)) return unknown('vin_missing', draft)
  const event = begin(topic, draft)
  return readPayload(event, topic, payload, rules) ? end(event, draft) : unknown('payload_mismatch', draft)
}

/** The format of a message that is no envelope. Only `data` tells the first two apart. */
function plainFormat(raw: JsonObject, topic: WireTopic | undefined, pinned: 'auto' | Format): Format {
  if (topic === 'data' && Array.isArray(raw['data'])) return 'vehicle_maker'
  if (topic === 'data' && isJsonObject(raw['data'])) return 'service'
  return pinned === 'vehicle_maker' ? pinned : 'service'
}

function readPlain(raw: JsonObject, receivedAt: Date, pinned: 'auto' | Format, rules: FieldRules): Reading {
  const topic = topicOf(raw)
  const format = plainFormat(raw, topic, pinned)
  const createdAt = raw['createdAt']
  const text = typeof createdAt === 'string' ? createdAt : undefined
  const draft: Draft = {
    raw,
    receivedAt,
    format,
    vin: raw['vin'],
    createdAt: text,
    createdMs: text === undefined ? Number.NaN : readInstant(text),
    meta: messageMeta(nothing, raw, topic),
  }
  if (topic === undefined) return unknown('no_topic', draft)
  if (pinned !== 'auto' && pinned !== format) return unknown('format_mismatch', draft)
  return known(topic, payloadIn(raw, topic), draft, rules)
}

function readEnvelope(raw: JsonObject, receivedAt: Date, pinned: 'auto' | Format, rules: FieldRules): Reading {
  const { event, source, sourcetype, time } = raw
  const inner = isJsonObject(event) ? event : undefined
  const innerTopic = inner && topicOf(inner)
  const labelled = sourcetype != null
  const topic =
    typeof sourcetype === 'string' ? topicOfLabel(sourcetype) : labelled ? undefined : (innerTopic ?? 'data')
  // A data message is the map itself, whatever its fields are called; only without a label is there a key to go by.
  const nested = topic !== undefined && topic === innerTopic && !(labelled && topic === 'data')
  const meta = envelopeMeta(raw)
  const draft: Draft = {
    raw,
    receivedAt,
    format: 'event_collector',
    vin: topic === undefined ? undefined : source,
    createdAt: undefined,
    createdMs: readEnvelopeTime(time),
    meta: nested && inner ? messageMeta(meta, inner, topic) : meta,
  }
  if (pinned !== 'auto' && pinned !== 'event_collector') return unknown('format_mismatch', draft)
  const isTelemetry =
    topic !== undefined && source != null && (typeof event === 'object' || (labelled && topic === 'state'))
  if (!isTelemetry) return unknown('foreign_event', draft)
  return known(topic, nested && inner ? payloadIn(inner, topic) : event, draft, rules)
}

function dateOf(receivedAt: Date | number): Date {
  const date = typeof receivedAt === 'number' ? new Date(receivedAt) : receivedAt
  return Number.isNaN(date.getTime()) ? new Date() : date
}

/**
 * Makes a normaliser: it reads messages of all three formats as events of one union.
 *
 * @example
 * ```ts
 * import { createNormalizer } from 'fleethook/normalize'
 *
 * const normalizer = createNormalizer()
 * const event = normalizer.normalize(JSON.parse('{"data":{"BatteryLevel":"81.5"},"vin":"5YJ3","createdAt":"2024-02-24T04:58:44Z"}'))
 * if (event.topic === 'data') console.log(event.data.BatteryLevel) // 81.5
 * ```
 *
 * Specification: "Events". Throws `FleethookError` of code `option_invalid` when a type in `fields` is none.
 */
export function createNormalizer<const Fields extends FieldCatalogue = FieldCatalogue>(
  options: NormalizerOptions<Fields> = {},
): Normalizer<ExtendedBy<Fields>> {
  const { format: pinned = 'auto', decode = true, fields, onDrift } = options
  const rules: FieldRules = { readers: decode ? fieldReaders(fields) : undefined, onDrift }
  return {
    normalize(message, receivedAt = Date.now()) {
      const raw = message as JsonObject
      const received = dateOf(receivedAt)
      const isCollected = isEnvelope(raw) || (pinned === 'event_collector' && raw['event'] != null)
      const event = isCollected ? readEnvelope(raw, received, pinned, rules) : readPlain(raw, received, pinned, rules)
      // The readers guarantee per topic what no compiler can follow through them; the tests hold the schemas against it.
      return event as unknown as WireEvent<ExtendedBy<Fields>>
    },
  }
}
