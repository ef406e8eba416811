import type { DataEvent } from '../events/event.ts'
import type { FieldValue, Json } from '../events/values.ts'
import { named } from './named.ts'
import { Reading } from './reading.ts'

/**
 * One `data` event out of several of a VIN: each field has its newest value by the vehicle's clock, and of two of one
 * moment the one that came later. Everything else is the newest event's; `meta.conflated` says how many there were.
 */
export function mergeData(events: readonly [DataEvent, ...DataEvent[]]): DataEvent {
  const ordered = events.toSorted((a, b) => a.at.getTime() - b.at.getTime())
  const newest = ordered.at(-1) ?? events[0]
  const data = named<FieldValue | undefined>()
  const undecoded = named<Json | undefined>()
  let conflated = 0
  for (const event of ordered) {
    conflated += event.meta.conflated ?? 1
    for (const name in event.data) {
      data[name] = event.data[name]
      delete undecoded[name]
    }
    for (const name in event.undecoded) undecoded[name] = event.undecoded[name]
  }
  const { createdAt, at, receivedAt, format, vin, meta, raw } = newest
  const merged = new Reading('data', createdAt, at, receivedAt, format)
  return Object.assign(merged, {
    topic: 'data' as const,
    vin,
    data,
    undecoded,
    meta: { ...meta, conflated },
    raw,
  }) as Reading & DataEvent
}
