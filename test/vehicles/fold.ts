import type { FleetEvent, Location } from 'fleethook'
import { type Law, lawOf } from '../../src/events/laws.ts'
import type { AnyVehicleView, Change, Edge, EdgeMemory, EdgeStep, Occurrence } from 'fleethook/when'

/** One field in the plainest form. */
interface Known {
  readonly value: unknown
  readonly atMs: number
  readonly isCertain: boolean
  /** When the value became what it is. */
  readonly sinceMs: number
  readonly invalidMs?: number | undefined
  /** A value that could not follow this one, and waits for the next. */
  readonly held?: Said | undefined
}

interface Said {
  readonly value: unknown
  readonly atMs: number
}

const numbersOf = (value: unknown): readonly number[] =>
  typeof value === 'number'
    ? [value]
    : typeof value === 'object' && value !== null && 'latitude' in value && 'longitude' in value
      ? [Number(value.latitude), Number(value.longitude)]
      : []

/** Whether a value can be true, written as the page says it. */
function isPossible({ kind, least = -Infinity, most = Infinity }: Law, value: unknown): boolean {
  const [one, other] = numbersOf(value)
  if (kind === 'place') return one !== undefined && Math.abs(one) <= 90 && !(one === 0 && other === 0)
  return one === undefined || (one >= least && one <= most)
}

/** Whether it can follow another one. Places lie close together here, so the earth is flat. */
function follows({ kind, perMinute, atOnce, back = 0 }: Law, before: Said, next: Said): boolean {
  const [from = Number.NaN, fromEast = 0] = numbersOf(before.value)
  const [to = Number.NaN, toEast = 0] = numbersOf(next.value)
  const north = (to - from) * (kind === 'place' ? 111_195 : 1)
  const east = (toEast - fromEast) * 111_195 * Math.cos((to * Math.PI) / 180)
  const most = atOnce + (perMinute * Math.abs(next.atMs - before.atMs)) / 60_000
  return !(kind === 'counter' && from - to > back) && !(Math.hypot(north, east) > most)
}

/** What is believed after one more value: the held one and the new one in the order of their times, each compared with those before it. */
function believed(law: Law, known: Said, held: Said | undefined, next: Said): { last: Said; first: Said; held?: Said } {
  const isCopy = held?.atMs === next.atMs && JSON.stringify(held.value) === JSON.stringify(next.value)
  const waiting = held === undefined || isCopy ? [next] : [held, next].toSorted((one, other) => one.atMs - other.atMs)
  let [last, first]: readonly [Said, Said] = [known, known]
  let odd: Said | undefined
  for (const said of waiting) {
    const isConfirmed = odd !== undefined && !follows(law, last, said) && follows(law, odd, said)
    if (isConfirmed && odd !== undefined) [last, first, odd] = [said, odd, undefined]
    else if (follows(law, last, said)) [last, first, odd] = [said, said, undefined]
    else odd = said
  }
  return odd === undefined ? { last, first } : { last, first, held: odd }
}

const meansNone = new Set(['DestinationName', 'MilesToArrival', 'MinutesToArrival', 'TimeToFullCharge'])

/**
 * The newest state of one vehicle, folded message by message without any cleverness: the model that the real one is compared with.
 * It knows `data`, `state`, `alerts` and `gap`.
 */
export class Fold {
  readonly #vin: string
  #fields: ReadonlyMap<string, Known> = new Map()
  #online: { readonly state: string; readonly atMs: number; readonly isCertain: boolean } | undefined
  #seenAt: Date | undefined

  constructor(vin: string) {
    this.#vin = vin
  }

  /** Takes the next message in the order of arrival. */
  take(event: FleetEvent): Omit<EdgeStep, 'memory'> {
    const before = this.view(event.receivedAt)
    const changes: Change[] = []
    const atMs = Math.min(event.at.getTime(), event.receivedAt.getTime())
    const step = (): Omit<EdgeStep, 'memory'> => ({
      before,
      after: this.view(event.receivedAt),
      event,
      at: new Date(atMs),
      arrivedMs: event.receivedAt.getTime(),
      changes,
      timer: undefined,
    })
    if (event.topic === 'gap') {
      this.#fields = new Map([...this.#fields].map(([name, known]) => [name, { ...known, isCertain: false }]))
      if (this.#online !== undefined) this.#online = { ...this.#online, isCertain: false }
      return step()
    }
    this.#seenAt = event.receivedAt
    if (event.topic === 'state' && (this.#online === undefined || atMs >= this.#online.atMs))
      this.#online = { state: event.state, atMs, isCertain: true }
    if (event.topic === 'data') {
      const fields = new Map(this.#fields)
      for (const [field, value] of Object.entries(event.data)) {
        if (value === undefined || Object.hasOwn(event.undecoded, field)) continue
        const known = fields.get(field)
        if (known !== undefined && atMs < known.atMs) continue
        const about = { field, acrossGap: known?.isCertain === false, first: false, invalid: false }
        if (value === null && !meansNone.has(field)) {
          if (known === undefined || known.invalidMs !== undefined) continue
          fields.set(field, { ...known, invalidMs: atMs })
          const [at, fromAt] = [new Date(atMs), new Date(known.atMs)]
          changes.push({ ...about, at, from: known.value as never, to: null, fromAt, invalid: true })
          continue
        }
        const law = event.meta.createdAtMissing === true ? undefined : lawOf(field)
        if (law !== undefined && !isPossible(law, value)) continue
        const said = { value, atMs }
        const { last, first, held } =
          known === undefined || law === undefined
            ? { last: said, first: said }
            : believed(law, known, known.held, said)
        if (last === known) {
          fields.set(field, { ...known, held })
          continue
        }
        const isSame = known !== undefined && JSON.stringify(known.value) === JSON.stringify(last.value)
        const fromMs = JSON.stringify(first.value) === JSON.stringify(last.value) ? first.atMs : last.atMs
        const isBack = known?.invalidMs !== undefined && last.atMs >= known.invalidMs
        // A null that overtook the value is newer, and stays.
        const invalidMs = isBack ? undefined : known?.invalidMs
        fields.set(field, { ...last, isCertain: true, sinceMs: isSame ? known.sinceMs : fromMs, invalidMs, held })
        const change = { ...about, at: new Date(fromMs), to: last.value as never }
        if (known === undefined) changes.push({ ...change, from: undefined, fromAt: undefined, first: true })
        else if (!isSame) changes.push({ ...change, from: known.value as never, fromAt: new Date(known.atMs) })
        else if (isBack) changes.push({ ...change, from: null, fromAt: new Date(known.invalidMs), invalid: true })
      }
      this.#fields = fields
    }
    return step()
  }

  /** The state at one moment. Later messages do not change it. */
  view(now: Date): AnyVehicleView {
    const fields = this.#fields
    const online = this.#online
    const ms = (field: string): number | undefined => fields.get(field)?.atMs
    return {
      vin: this.#vin,
      value: (field) => fields.get(field)?.value as never,
      at: (field) => dateOf(ms(field)),
      since: (field) => dateOf(fields.get(field)?.sinceMs),
      ageMs: (field) => (fields.has(field) ? Math.max(0, now.getTime() - (ms(field) ?? 0)) : undefined),
      isCertain: (field) => fields.get(field)?.isCertain === true,
      invalidSince: (field) => dateOf(fields.get(field)?.invalidMs),
      fields: [...fields.keys()],
      online: online && (online.state === 'online' || online.state === 'driving'),
      state: online?.state,
      isOnlineCertain: online?.isCertain === true,
      seenAt: this.#seenAt,
      moment: now,
      clockBehindMs: undefined,
      timers: [],
      trace: () => undefined,
      fact: () => undefined,
      facts: [],
    }
  }
}

const dateOf = (ms: number | undefined): Date | undefined => (ms === undefined ? undefined : new Date(ms))

/**
 * The occurrences that an edge finds in the messages of one vehicle with the plain fold, with the index of the message. The edge sees
 * only messages for which `looks` returns `true`. Default: all of them.
 */
export function happenings<Happened extends Occurrence>(
  edge: Edge<Happened>,
  events: readonly FleetEvent[],
  looks: (edge: Edge<Happened>, step: Omit<EdgeStep, 'memory'>) => boolean = () => true,
): readonly { readonly index: number; readonly happened: Happened }[] {
  const fold = new Fold(events[0]?.vin ?? '')
  let memory: EdgeMemory | undefined
  return events.flatMap((event, index) => {
    const step = fold.take(event)
    const isWaiting = typeof memory === 'object' && memory !== null && 'waits' in memory
    if (!isWaiting && !looks(edge, step)) return []
    const found = edge.detect({ ...step, memory })
    // Through JSON, like a stored memory.
    if (found?.memory !== undefined)
      memory = found.memory === null ? undefined : JSON.parse(JSON.stringify(found.memory))
    return [...(found?.earlier ?? []), found?.happened].flatMap((happened) =>
      happened === undefined ? [] : [{ index, happened }],
    )
  })
}

/**
 * As a receiver does it: when a field of the edge was touched and the position is or was in its bounds or is not known yet, or for its
 * topics.
 */
export function looksAsReceiver(edge: Edge, { before, after, event }: Omit<EdgeStep, 'memory'>): boolean {
  if (edge.topics.some((topic) => topic === event.topic)) return true
  const { bounds } = edge
  const isFirstPlace = before.value('Location') === undefined && before.seenAt !== undefined
  const isNear =
    after.value('Location') === undefined ||
    isFirstPlace ||
    [before, after].some((view) => {
      const place = view.value('Location') as Location | undefined
      return (
        bounds === undefined ||
        (place !== undefined &&
          place.latitude >= bounds.south &&
          place.latitude <= bounds.north &&
          place.longitude >= bounds.west &&
          place.longitude <= bounds.east)
      )
    })
  const isTouched = edge.fields.some(
    (field) =>
      JSON.stringify(before.value(field)) !== JSON.stringify(after.value(field)) ||
      (!before.isCertain(field) && after.isCertain(field)),
  )
  return isNear && isTouched
}
