import type { FieldValue } from '../events/values.ts'
import { documentValues } from '../vehicles/document.ts'
import type { AnyVehicleView, EdgeStep } from '../vehicles/edge.ts'
import { credibleMs, quietMs } from '../vehicles/lag.ts'
import { isPlace } from '../vehicles/places.ts'
import { lengthOf, nullMeansNone } from '../vehicles/state.ts'
import type { Definition } from './definition.ts'

const longestValue = 256

/** A value as it is kept until it is folded. Its time gives its place. When two have the same time and field, the later arrival counts. */
export type Sample = readonly [at: number, field: string | number, value: FieldValue, isLoose?: boolean]
/** Instead of a field: a message without one of the fields, so that there is no silence. */
export const heardOf = -1
/** Instead of a field: values up to now are uncertain, because messages may be missing. The value is when the receiver listened again. */
export const gapOf = -2
/** Added to the number of a field whose time is the receipt's. */
const looseOf = 1_000

/** In the text, the newest sample comes first, at this time. Each has the time since the one before it, and the number of its field. */
export function samplesOf(text: string, newestMs: number, fields: readonly string[]): Sample[] {
  const kept: readonly [number, number, FieldValue, longitude?: number][] = JSON.parse(`[${text.slice(0, -1)}]`)
  let at = newestMs
  const samples = kept.map(([ms, number, value, longitude]): Sample => {
    at -= ms
    const isLoose = number >= looseOf
    const field = fields[isLoose ? number - looseOf : number] ?? number
    return [at + ms, field, longitude === undefined ? value : { latitude: Number(value), longitude }, isLoose]
  })
  return samples.toReversed()
}

export function textOf(samples: readonly Sample[], beforeMs: number, fields: readonly string[]): string {
  let [text, before] = ['', beforeMs]
  for (const [at, field, value, isLoose] of samples) {
    const number = (typeof field === 'number' ? field : fields.indexOf(field)) + (isLoose === true ? looseOf : 0)
    const isPair = isPlace(value) && Object.keys(value).length === 2
    text = `${JSON.stringify([at - before, number, ...(isPair ? [value.latitude, value.longitude] : [value])])},${text}`
    before = at
  }
  return text
}

type Received = Pick<EdgeStep, 'event' | 'before' | 'after' | 'at' | 'arrivedMs'>

/** The values of a message that an episode needs, each with its time. */
export function samplesIn({ fields }: Definition, { event, before, after, at, arrivedMs }: Received): Sample[] {
  const sentMs = credibleMs(at.getTime(), arrivedMs)
  const samples: Sample[] = []
  const add = (name: string, value: FieldValue | null, ms: number, isLoose = false): void => {
    const isNone = value === null && !nullMeansNone.has(name)
    if (fields.includes(name) && !isNone && lengthOf(value) <= longestValue) samples.push([ms, name, value, isLoose])
  }
  if (event.topic === 'vehicle_data')
    for (const { field, value, atMs } of documentValues(event.vehicleData, sentMs)) {
      const ms = credibleMs(atMs, arrivedMs)
      // A document rounds.
      add(field, after.at(field)?.getTime() === ms ? (after.value(field) ?? value) : value, ms)
    }
  if (event.topic !== 'data') return samples
  const data: Readonly<Record<string, FieldValue | null | undefined>> = event.data
  const names = fields.filter((name) => data[name] !== undefined && !Object.hasOwn(event.undecoded, name))
  // A clock that was ahead and is right again says an earlier time of what is newer: by as much as a message takes. In what order it
  // spoke while it was ahead, the state knows.
  const known = names.map((name) => (Number(after.at(name)) === at.getTime() ? Number(before.at(name)) : 0))
  const ms = Math.max(sentMs, ...known.map((one) => (one > sentMs && one - sentMs <= quietMs ? one + 1 : 0)))
  const isAhead = event.at.getTime() > arrivedMs
  // Its clock was never set, or is ahead.
  const isLoose = isAhead || sentMs !== at.getTime() || event.meta.createdAtMissing === true
  // A value that waits to be confirmed is not older.
  const isHeld = (name: string): boolean =>
    after.odd?.some(({ field, held }) => field === name && Number(held?.at) === sentMs) === true
  const keptMs = (name: string): number => (isAhead && !isHeld(name) ? Number(after.at(name)) : sentMs)
  for (const name of names) add(name, data[name] ?? null, keptMs(name) < sentMs ? keptMs(name) - 1 : ms, isLoose)
  return samples
}

/** What the receiver knew of a vehicle before it was given the episode. */
export function keptSamples({ fields, deciding }: Definition, before: AnyVehicleView): Sample[] {
  return fields.flatMap((field): Sample[] => {
    const value = before.value(field)
    const at = deciding.has(field) ? before.since(field) : before.at(field)
    const isKept = value !== undefined && before.isCertain(field) && lengthOf(value) <= longestValue
    return isKept && at !== undefined ? [[at.getTime(), field, value]] : []
  })
}
