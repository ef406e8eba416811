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
import { asJsonObject, isJsonObject, isPresent, type JsonObject } from './record.ts'
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
  readonly normalize: (message: object, receivedAt?: Date | number) => WireEvent<Fields>
}

function isVin(vin: unknown): vin is string {
  return typeof vin === 'string' && vin !== ''
}

/** The event without its payload. `createdAt` is the time as it was sent, `createdMs` is NaN when there is none to read. */
function eventOf(
  topic: WireTopic | 'unknown',
  vin: unknown,
  createdAt: string | undefined,
  createdMs: number,
  receivedAt: Date,
  format: Format,
  meta: Meta,
  raw: JsonObject,
): Reading {
  const known = isVin(vin) ? vin : undefined
  if (Number.isNaN(createdMs)) {
    const at = new Date(receivedAt)
    return new Reading(topic, known, isoText(at.getTime()), at, receivedAt, format, undatedMeta(meta), raw)
  }
  return new Reading(topic, known, createdAt ?? isoText(createdMs), new Date(createdMs), receivedAt, format, meta, raw)
}

/** The same event as one of no topic. */
function unknown(reason: UnknownReason, { vin, createdAt, at, receivedAt, format, meta, raw }: Reading): Reading {
  const event = new Reading('unknown', vin, createdAt, at, receivedAt, format, meta, raw)
  event.reason = reason
  return event
}

/** The format of a message that is no envelope. Only `data` tells the first two apart. */
function plainFormat(raw: JsonObject, topic: WireTopic | undefined, pinned: 'auto' | Format): Format {
  if (topic === 'data') {
    const data = raw['data']
    if (Array.isArray(data)) return 'vehicle_maker'
    if (typeof data === 'object') return 'service'
  }
  return pinned === 'vehicle_maker' ? pinned : 'service'
}

function readPlain(raw: JsonObject, receivedAt: Date, pinned: 'auto' | Format, rules: FieldRules): Reading {
  const topic = topicOf(raw)
  const format = plainFormat(raw, topic, pinned)
  const createdAt = raw['createdAt']
  const text = typeof createdAt === 'string' ? createdAt : undefined
  const createdMs = text === undefined ? Number.NaN : readInstant(text)
  const meta = messageMeta(nothing, raw, topic)
  const event = eventOf(topic ?? 'unknown', raw['vin'], text, createdMs, receivedAt, format, meta, raw)
  if (topic === undefined) return unknown('no_topic', event)
  if (pinned !== 'auto' && pinned !== format) return unknown('format_mismatch', event)
  return withPayload(event, topic, payloadIn(raw, topic), rules)
}

function withPayload(event: Reading, topic: WireTopic, payload: unknown, rules: FieldRules): Reading {
  if (event.vin === undefined) return unknown('vin_missing', event)
  return readPayload(event, topic, payload, rules) ? event : unknown('payload_mismatch', event)
}

function readEnvelope(raw: JsonObject, receivedAt: Date, pinned: 'auto' | Format, rules: FieldRules): Reading {
  const { event: body, source, sourcetype, time } = raw
  const labelled = isPresent(sourcetype)
  const inner = isJsonObject(body) ? body : undefined
  let topic = typeof sourcetype === 'string' ? topicOfLabel(sourcetype) : undefined
  let nested: JsonObject | undefined
  // A labelled data event is the map itself, whatever its fields are called: only without a label is there a key to go by.
  if (inner !== undefined && !(labelled && (topic === undefined || topic === 'data'))) {
    const innerTopic = topicOf(inner)
    if (!labelled) topic = innerTopic ?? 'data'
    if (topic === innerTopic) nested = inner
  }
  const isTelemetry =
    topic !== undefined &&
    isPresent(source) &&
    (typeof body === 'object' || (topic === 'state' && typeof body === 'string'))
  const meta = nested === undefined ? envelopeMeta(raw) : messageMeta(envelopeMeta(raw), nested, topic)
  const vin = topic === undefined ? undefined : source
  const createdMs = readEnvelopeTime(time)
  const event = eventOf(topic ?? 'unknown', vin, undefined, createdMs, receivedAt, 'event_collector', meta, raw)
  if (pinned !== 'auto' && pinned !== 'event_collector') return unknown('format_mismatch', event)
  if (topic === undefined || !isTelemetry) return unknown('foreign_event', event)
  return withPayload(event, topic, nested === undefined ? body : payloadIn(nested, topic), rules)
}

function dateOf(receivedAt: Date | number): Date {
  if (typeof receivedAt !== 'number') return Number.isNaN(receivedAt.getTime()) ? new Date() : receivedAt
  return new Date(Math.abs(receivedAt) <= 8.64e15 ? receivedAt : Date.now())
}

/**
 * Makes a normaliser: it reads messages of all three formats as events of one union.
 *
 * @example
 * ```ts
 * import { createNormalizer } from 'fleethook/normalize'
 *
 * const normalizer = createNormalizer()
 * const event = normalizer.normalize(JSON.parse('{"data":{"BatteryLevel":"81.5"},"vin":"0FLEETV14T0000004","createdAt":"2024-02-24T04:58:44Z"}'))
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
      const raw = asJsonObject(message)
      const received = dateOf(receivedAt)
      const isCollected = isEnvelope(raw) || (pinned === 'event_collector' && isPresent(raw['event']))
      const event = isCollected ? readEnvelope(raw, received, pinned, rules) : readPlain(raw, received, pinned, rules)
      // The readers guarantee per topic what no compiler can follow through them; the tests hold the schemas against it.
      return event as unknown as WireEvent<ExtendedBy<Fields>> // oxlint-disable-line no-unsafe-type-assertion
    },
  }
}
