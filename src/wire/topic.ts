import type { WireTopic } from '../events/event.ts'
import { isPresent, type JsonObject } from './record.ts'

/** Top-level key to topic, in the order in which they count: the first that is there names the topic. */
export function topicOf(message: JsonObject): WireTopic | undefined {
  if (isPresent(message['state'])) return 'state'
  if (isPresent(message['data'])) return 'data'
  if (isPresent(message['errors'])) return 'errors'
  if (isPresent(message['alerts'])) return 'alerts'
  if (isPresent(message['networkInterface'])) return 'connectivity'
  if (isPresent(message['vehicle_data'])) return 'vehicle_data'
  return undefined
}

const label = /^[^:]+:telemetry:(\w+)$/i

const topics: ReadonlyMap<string, WireTopic> = /* @__PURE__ */ new Map(
  (['state', 'data', 'errors', 'alerts', 'connectivity', 'vehicle_data'] as const).map((topic) => [topic, topic]),
)

let knownLabel = ''
let knownTopic: WireTopic | undefined

/**
 * The topic that a `sourcetype` such as `vehicle:telemetry:data` names. The last answer is remembered: one service has one
 * label for each topic, and nearly every message is data.
 */
export function topicOfLabel(sourcetype: string): WireTopic | undefined {
  if (sourcetype !== knownLabel) {
    const [, name = ''] = label.exec(sourcetype) ?? []
    knownTopic = topics.get(name.toLowerCase())
    knownLabel = sourcetype
  }
  return knownTopic
}
