import type { Event } from './answers.ts'

/** `10:00:01`, in UTC as in the log and on the command line. */
export const timeOf = (iso: string): string => iso.slice(11, 19)

/** `2026-11-21 10:00:01.250`, in UTC */
export const momentOf = (iso: string): string => iso.slice(0, 23).replace('T', ' ').replace('Z', '')

/** `12 ms`, `1.4 s`, `3 min`, `2 h`, `5 d` */
export function durationOf(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`
  if (ms < 10_000) return `${(ms / 1_000).toFixed(1)} s`
  if (ms < 120_000) return `${Math.round(ms / 1_000)} s`
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`
  return ms < 172_800_000 ? `${Math.round(ms / 3_600_000)} h` : `${Math.round(ms / 86_400_000)} d`
}

export const countOf = (n: number, word: string): string => `${numberOf(n)} ${word}${n === 1 ? '' : 's'}`

const grouping = new Intl.NumberFormat('en-US', { maximumFractionDigits: 1 })

/** `12,345.6` */
export const numberOf = (n: number): string => grouping.format(n)

/** `1.4 MB` */
export function bytesOf(n: number): string {
  if (n < 1_000) return `${n} B`
  return n < 1_000_000 ? `${numberOf(n / 1_000)} kB` : `${numberOf(n / 1_000_000)} MB`
}

export function valueOf(value: unknown): string {
  if (value === null || value === undefined) return 'null'
  if (typeof value === 'string') return value
  if (typeof value === 'number') return String(Math.round(value * 1e6) / 1e6)
  const { latitude, longitude } = objectOf(value)
  if (typeof latitude === 'number' && typeof longitude === 'number')
    return `${latitude.toFixed(4)}, ${longitude.toFixed(4)}`
  return JSON.stringify(value)
}

export const gistOf = (event: Event): string => wordsOf(event).slice(0, 300)

function wordsOf(event: Event): string {
  const { topic, data, fields } = event
  switch (topic) {
    case 'data':
      if (data === undefined) return (fields ?? []).join(', ')
      return Object.entries(data)
        .map(([field, value]) => `${field} ${valueOf(value)}`)
        .join(', ')
    case 'alerts':
    case 'errors': {
      const list = event[topic]
      return Array.isArray(list) ? list.map((entry) => valueOf(memberOf(entry, 'name'))).join(', ') : ''
    }
    case 'vehicle_data':
      return Object.keys(objectOf(event['vehicleData'])).join(', ')
    case 'gap':
      return `${valueOf(event['reason'])}: ${event['missed'] === 0 ? 'some' : valueOf(event['missed'])} missing`
    case 'malformed':
      return `${valueOf(event['error'])} ${valueOf(event['text'] ?? '')}`
    default: {
      const words = [event['state'], event['status'], event['networkInterface'], event['reason']]
      return words.filter((word) => typeof word === 'string').join(' ')
    }
  }
}

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null

const objectOf = (value: unknown): Readonly<Record<string, unknown>> => (isObject(value) ? value : {})

const memberOf = (value: unknown, name: string): unknown => objectOf(value)[name]

/** The value of each field as the message brought it, whatever its format. */
export function rawFieldsOf({ raw, format }: Event): ReadonlyMap<string, unknown> {
  const { data: own, event, sourcetype } = objectOf(raw)
  // With a label, the event of a collector message is the map of fields. Without one, it can be a whole message.
  const nested = sourcetype == null ? memberOf(event, 'data') : undefined
  const data = format === 'event_collector' ? (nested ?? event) : own
  if (!Array.isArray(data)) return new Map(Object.entries(objectOf(data)))
  return new Map(data.map((entry) => [String(memberOf(entry, 'key')), memberOf(entry, 'value')]))
}
