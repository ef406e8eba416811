import type { DataEvent } from '../events/event.ts'
import type { FieldValue, Json } from '../events/values.ts'
import { type Named, named } from './named.ts'
import { Reading } from './reading.ts'

/** When the vehicle made each field of an event that was merged before, so that it can be merged again. */
const fieldTimes: WeakMap<DataEvent, Named<number>> = /* @__PURE__ */ new WeakMap()

/**
 * One `data` event out of several of a VIN, given in order of arrival: each field has its newest value by the vehicle's
 * clock, and of two of one moment the one that came later. Everything else is the newest event's; `meta.conflated` says
 * how many there were.
 */
export function mergeData(events: readonly [DataEvent, ...DataEvent[]]): DataEvent {
  let [newest] = events
  const data = named<FieldValue | undefined>()
  const undecoded = named<Json>()
  const times = named<number>()
  let conflated = 0
  for (const event of events) {
    conflated += event.meta.conflated ?? 1
    if (event.at >= newest.at) newest = event
    const known = fieldTimes.get(event)
    for (const name in event.data) {
      const time = known?.[name] ?? event.at.getTime()
      const newestTime = times[name]
      if (newestTime !== undefined && time < newestTime) continue
      times[name] = time
      data[name] = event.data[name]
      const left = event.undecoded[name]
      if (left === undefined) delete undecoded[name]
      else undecoded[name] = left
    }
  }
  const { createdAt, at, receivedAt, format, vin, raw } = newest
  const meta = Object.assign(named<unknown>(), newest.meta, { conflated })
  const reading = new Reading('data', vin, createdAt, at, receivedAt, format, meta, raw)
  const merged = Object.assign(reading, { topic: 'data' as const, vin, meta, data, undecoded })
  fieldTimes.set(merged, times)
  return merged
}
