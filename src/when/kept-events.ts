import type { DataEvent, FleetEvent, Meta, WireEvent } from '../events/event.ts'
import { originOf } from '../events/origin.ts'
import type { KeptMessages, MessageRecord } from '../observe/dead-letters.ts'

/*
 * The events of all vehicles, from one list of messages, newest first. Each event is kept as a short text with what an episode
 * reads. When these texts are too long, the last vehicles in the order of VINs wait for another list.
 */

/** The most characters that are kept at once, unless one vehicle has more: about as many bytes. */
const mostCharacters = 50_000_000

/** So many short texts are joined: each of them alone takes half as much memory again. */
const joinedTexts = 32

/** An event as it is kept. In topics without values, only the clock that made `at` matters. */
type KeptEvent<Values> = readonly [
  receivedMs: number,
  lateMs: number,
  topic: 'data' | 'vehicle_data' | 'alerts' | 'state',
  isTimeMissing: boolean,
  values: Values,
  undecoded: readonly string[],
]

/** The events of some vehicles that were received at `from` or later, with the values of these fields. Each time, other vehicles are in it. */
export async function* eventsByVehicle(
  messages: Pick<KeptMessages, 'list'>,
  fields: readonly string[],
  from: Date,
): AsyncGenerator<KeptEvents, void, undefined> {
  for (let after: string | undefined = ''; after !== undefined;) {
    const kept: KeptEvents = new KeptEvents(fields, after)
    for await (const { event } of messages.list({ from })) kept.add(event)
    yield kept
    after = kept.next
  }
}

/** What was kept of one list. */
export class KeptEvents {
  readonly #fields: readonly string[]
  readonly #after: string
  /** By VIN, newest first. */
  readonly #texts = new Map<string, { joined: string[]; last: string[]; length: number }>()
  #length = 0
  /** The first vehicle that waits for another list. */
  #waiting: string | undefined

  constructor(fields: readonly string[], after: string) {
    this.#fields = fields
    this.#after = after
  }

  add(event: MessageRecord['event']): void {
    if (event.topic === 'malformed' || event.topic === 'unknown' || originOf(event) !== 'vehicle') return
    const { vin = '' } = event
    if (vin <= this.#after || (this.#waiting !== undefined && vin >= this.#waiting)) return
    const text = JSON.stringify(keptOf(event, this.#fields))
    const texts = this.#texts.get(vin) ?? { joined: [], last: [], length: 0 }
    this.#texts.set(vin, texts)
    texts.length += text.length
    this.#length += text.length
    if (texts.last.push(text) === joinedTexts) texts.joined.push(texts.last.splice(0).join(','))
    if (this.#length > mostCharacters) this.#makeRoom()
  }

  /** In the order of their arrival. */
  of(vin: string): readonly WireEvent[] {
    const { joined = [], last = [] } = this.#texts.get(vin) ?? {}
    const kept: readonly KeptEvent<DataEvent['data']>[] = JSON.parse(`[${[...joined, ...last].join(',')}]`)
    return kept.toReversed().map((each) => eventOf(vin, each))
  }

  /** The vehicle behind which the next list goes on. `undefined`: this one has all. */
  get next(): string | undefined {
    return this.#waiting === undefined ? undefined : [...this.#texts.keys()].toSorted().at(-1)
  }

  #makeRoom(): void {
    const [, ...others] = [...this.#texts.keys()].toSorted()
    for (const vin of others.toReversed()) {
      if (this.#length <= mostCharacters / 2) return
      this.#length -= this.#texts.get(vin)?.length ?? 0
      this.#texts.delete(vin)
      this.#waiting = vin
    }
  }
}

function keptOf(
  event: Exclude<FleetEvent, { readonly topic: 'unknown' }>,
  fields: readonly string[],
): KeptEvent<object> {
  const receivedMs = event.receivedAt.getTime()
  const lateMs = receivedMs - event.at.getTime()
  const isTimeMissing = event.meta.createdAtMissing === true
  switch (event.topic) {
    case 'data': {
      const data: Readonly<Record<string, unknown>> = event.data
      const names = fields.filter((name) => Object.hasOwn(data, name))
      const undecoded = names.filter((name) => Object.hasOwn(event.undecoded, name))
      const values = Object.fromEntries(names.map((name) => [name, data[name]]))
      return [receivedMs, lateMs, 'data', isTimeMissing, values, undecoded]
    }
    case 'vehicle_data':
      return [receivedMs, lateMs, 'vehicle_data', isTimeMissing, event.vehicleData, []]
    case 'alerts':
    case 'errors':
      return [receivedMs, lateMs, 'alerts', isTimeMissing, {}, []]
    default:
      return [receivedMs, lateMs, 'state', isTimeMissing, {}, []]
  }
}

function eventOf(
  vin: string,
  [receivedMs, lateMs, topic, isTimeMissing, values, undecoded]: KeptEvent<DataEvent['data']>,
): WireEvent {
  const at = new Date(receivedMs - lateMs)
  const meta: Meta = isTimeMissing ? { createdAtMissing: true } : {}
  const event = {
    vin,
    createdAt: at.toISOString(),
    at,
    receivedAt: new Date(receivedMs),
    format: 'service',
    id: '',
    raw: {},
    meta,
  } as const
  if (topic === 'vehicle_data') return { ...event, topic, vehicleData: values }
  if (topic === 'alerts') return { ...event, topic, alerts: [] }
  if (topic === 'state') return { ...event, topic, state: '' }
  return { ...event, topic, data: values, undecoded: Object.fromEntries(undecoded.map((name) => [name, null])) }
}
