import type { EventBase, WireEvent, WireTopic } from '../../events/event.ts'
import type { BuiltInFields, FieldCatalogue } from '../../events/fields.ts'
import { identity } from '../../wire/identity.ts'
import type { Normalizer } from '../../wire/normalizer.ts'
import { NormalizedEvent } from '../../wire/normalized-event.ts'
import { isJsonObject, type JsonObject } from '../../wire/record.ts'
import { readConfig, type StoredConfig } from './config.ts'
import type { Document } from './products.ts'

/** The topics of the stream of an energy site. */
export type SiteTopic = 'live_status' | 'site_info' | 'tariff_content_v2' | 'energy_totals'

/** The topics that a stream can be asked for. `credits` arrives as `unknown`, because its shape is not known. */
export type StreamTopic = WireTopic | SiteTopic | 'config' | 'credits' | (string & {})

/**
 * The streaming config of the vehicle has changed.
 *
 * Specification: "Streaming config". The message is not part of it: see reading 16 in docs/decisions/0021-interface.md.
 */
export interface ConfigEvent extends EventBase {
  readonly topic: 'config'
  /** The whole config after the change. */
  readonly config: StoredConfig
}

/**
 * A document of an energy site. Each one replaces the last one of its topic.
 *
 * Specification: "Energy sites". The message is not part of it: see reading 16 in docs/decisions/0021-interface.md.
 */
export interface SiteEvent extends Omit<EventBase, 'vin'> {
  readonly topic: SiteTopic
  readonly siteId: string
  /** `null` when the site no longer has one, for instance no tariff. */
  readonly document: Document | null
}

/**
 * An event of a stream: an event of the webhook, or of one of the topics that only streams have. A message of any other topic is an
 * `unknown` event. It is never an error.
 */
export type StreamEvent<Fields extends FieldCatalogue = BuiltInFields> = WireEvent<Fields> | ConfigEvent | SiteEvent

/** The key of the document in a message, and its topic. */
const documents: readonly (readonly [key: string, topic: SiteTopic])[] = [
  ['live_status', 'live_status'],
  ['site_info', 'site_info'],
  ['tariff_content_v2', 'tariff_content_v2'],
  ['energy_totals', 'energy_totals'],
  ['totals', 'energy_totals'],
]

export interface Streamed {
  readonly vin?: string
  readonly siteId?: string
}

export function readStreamEvent<Fields extends FieldCatalogue>(
  normalizer: Normalizer<Fields>,
  streamed: Streamed,
  message: JsonObject,
  receivedAt: number,
): StreamEvent<Fields> {
  const event = normalizer.normalize(message, receivedAt)
  if (event.topic !== 'unknown' || event.reason !== 'no_topic') return event
  return readConfigEvent(event) ?? readSiteEvent(event, streamed) ?? event
}

type Unmapped = Extract<WireEvent, { topic: 'unknown' }>

function readConfigEvent(event: Unmapped): ConfigEvent | undefined {
  const { vin, raw } = event
  const config = readConfig(raw['config'])
  if (vin === undefined || config === undefined) return undefined
  return Object.assign(typedEvent('config', event, ['config']), { topic: 'config' as const, vin, config })
}

function readSiteEvent(event: Unmapped, { siteId: streamedId }: Streamed): SiteEvent | undefined {
  const { raw } = event
  const siteId = idIn(raw['site_id']) ?? idIn(raw['id']) ?? streamedId
  const [key, topic] = documents.find(([name]) => Object.hasOwn(raw, name)) ?? []
  if (siteId === undefined || key === undefined || topic === undefined) return undefined
  const document = raw[key]
  if (document !== null && !isJsonObject(document)) return undefined
  return Object.assign(typedEvent(topic, event, [key, 'site_id', 'id']), { topic, siteId, document })
}

/** The event without the members of its own topic, which the normalizer leaves in `meta` because it does not know the topic. */
function typedEvent(topic: string, event: Unmapped, payload: readonly string[]): NormalizedEvent {
  const { vin, createdAt, at, receivedAt, format, raw } = event
  const meta = Object.fromEntries(Object.entries(event.meta).filter(([name]) => !payload.includes(name)))
  return new NormalizedEvent(topic, vin, createdAt, at, receivedAt, format, meta, raw)
}

function idIn(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : typeof value === 'number' ? String(value) : undefined
}

interface EventValue {
  /** As `meta.changed` names it. */
  readonly name: string
  /** Parts with the same key are values of the same thing. */
  readonly key: string
  readonly value: unknown
}

interface Known {
  /** A hash of the value, so it is short however long the value is. */
  readonly value: string
  /** When the vehicle made the event, in milliseconds. */
  readonly at: number
  readonly connection: number
  readonly isCache: boolean
}

/** The most values that are remembered. A vehicle has about 250 fields. */
const mostKnown = 2_000
const epoch = new Date(0)

/** What a stream has delivered so far. It recognizes what a snapshot repeats. */
export class Delivered {
  readonly #known = new Map<string, Known>()
  #connection = 0
  /** The current connection has sent a snapshot. */
  #hasSnapshot = false

  connected(): void {
    this.#connection += 1
    this.#hasSnapshot = false
  }

  /**
   * Takes an event before it is delivered, and returns the names of what is new in it. Not new are a snapshot's values
   * that were delivered last, and after a snapshot what it or an earlier connection delivered at that time. Other events
   * that come twice are new each time: vehicles repeat messages.
   */
  note(event: StreamEvent<FieldCatalogue>): readonly string[] {
    const isCache = event.meta.isCache === true
    const at = event.at.getTime()
    this.#hasSnapshot ||= isCache
    const all = partsOf(event).map((part) => ({ ...part, value: identity(undefined, part.key, epoch, part.value) }))
    const fresh = all.filter(({ key, value }) => {
      const known = this.#known.get(key)
      if (known?.value !== value) return true
      if (isCache) return false
      return !this.#hasSnapshot || known.at !== at || (known.connection === this.#connection && !known.isCache)
    })
    if (fresh.length === 0) return []
    for (const { key, value } of isCache ? fresh : all) {
      this.#known.delete(key)
      this.#known.set(key, { value, at, connection: this.#connection, isCache })
    }
    for (const key of this.#known.keys()) {
      if (this.#known.size <= mostKnown) break
      this.#known.delete(key)
    }
    return [...new Set(fresh.map(({ name }) => name))]
  }
}

function partsOf(event: StreamEvent<FieldCatalogue>): readonly EventValue[] {
  const parts = valuesOf(event).map(([name, key, value]) => ({ name, key: `${event.topic} ${key}`, value }))
  // A snapshot can say that there is nothing, for instance no alerts.
  return parts.length > 0 ? parts : [{ name: event.topic, key: event.topic, value: null }]
}

function valuesOf(
  event: StreamEvent<FieldCatalogue>,
): readonly (readonly [name: string, key: string, value: unknown])[] {
  const { topic } = event
  switch (topic) {
    case 'data':
      return Object.entries(event.data).map(([name, value]) => [name, name, [value, event.undecoded[name] ?? null]])
    case 'state':
      return [[topic, '', event.state]]
    case 'connectivity':
      return [[event.networkInterface, event.networkInterface, [event.status, event.connectionId ?? null]]]
    case 'alerts':
      return event.alerts.map((alert) => [alert.name, `${alert.name} ${alert.startedAt ?? ''}`, alert])
    case 'errors':
      return event.errors.map((error) => [error.name, `${error.name} ${error.createdAt ?? ''}`, error])
    case 'vehicle_data':
      return [[topic, '', event.vehicleData]]
    case 'config':
      return [[topic, '', event.config]]
    case 'unknown': {
      const { createdAt: _, isCache: __, ...message } = event.raw
      return [[topic, Object.keys(message).toSorted().join(' '), message]]
    }
    default:
      return [[topic, event.siteId, event.document]]
  }
}
