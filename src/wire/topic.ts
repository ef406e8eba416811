import type { WireTopic } from '../events/event.ts'
import type { JsonObject } from './record.ts'

/** Top-level key to topic, in the order in which they count: the first that is there names the topic. */
export function topicOf(message: JsonObject): WireTopic | undefined {
  if (message['state'] != null) return 'state'
  if (message['data'] != null) return 'data'
  if (message['errors'] != null) return 'errors'
  if (message['alerts'] != null) return 'alerts'
  if (message['networkInterface'] != null) return 'connectivity'
  if (message['vehicle_data'] != null) return 'vehicle_data'
  return undefined
}

const label = /^[^:]+:telemetry:(state|data|errors|alerts|connectivity|vehicle_data)$/i

/** The topic that a `sourcetype` such as `vehicle:telemetry:data` names. */
export function topicOfLabel(sourcetype: string): WireTopic | undefined {
  const colon = sourcetype.indexOf(':')
  // The usual one, without the cost of a pattern.
  if (colon > 0 && sourcetype.length === colon + 15 && sourcetype.endsWith(':telemetry:data')) return 'data'
  switch (label.exec(sourcetype)?.[1]?.toLowerCase()) {
    case 'state':
      return 'state'
    case 'data':
      return 'data'
    case 'errors':
      return 'errors'
    case 'alerts':
      return 'alerts'
    case 'connectivity':
      return 'connectivity'
    case 'vehicle_data':
      return 'vehicle_data'
  }
  return undefined
}
