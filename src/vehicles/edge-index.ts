import { FleethookError } from '../base/errors.ts'
import type { FleetEvent } from '../events/event.ts'
import type { Location } from '../events/values.ts'
import type { AnyVehicleView, Bounds, Edge, Trace } from './edge.ts'
import type { Timing } from './timing.ts'

/** An edge that has handlers. */
interface IndexedEdge {
  readonly edge: Edge
  /** Its number in the order of registration. */
  readonly number: number
  /** The number of the last search that found it. */
  foundIn: number
}

/** The edges that a change of one field can make happen. */
interface OfField {
  readonly everywhere: IndexedEdge[]
  /** Edges with bounds, by the field with the position. */
  readonly bounded: Map<string, Grid>
}

/**
 * The edges of a receiver. A message finds its edges by topic, by the fields that it changed, and by position. So its cost depends
 * on the edges that it touches, not on their total number.
 */
export class EdgeIndex {
  readonly #byName = new Map<string, IndexedEdge>()
  readonly #byField = new Map<string, OfField>()
  readonly #byTopic = new Map<string, IndexedEdge[]>()
  readonly #byFact = new Map<string, IndexedEdge[]>()
  readonly #daily: IndexedEdge[] = []
  #searches = 0
  /** Called with each edge that has a timer. */
  onTiming: ((timing: Timing) => void) | undefined
  timing: Timing | undefined
  /** Keeps time for what is planned of facts. */
  planning: Timing | undefined
  /** The edges that begin with the stored state of a vehicle, by their marks. */
  readonly beginning: Map<string, Edge> = new Map()
  /** What the conditions of all edges remember of a vehicle, by name. */
  readonly traces: Map<string, Trace> = new Map()
  /** Their marks: a state with another text has not followed all of them, and no others. `undefined`: there are none. */
  rules: string | undefined

  /** In the order of registration. */
  get all(): readonly Edge[] {
    return [...this.#byName.values()].map(({ edge }) => edge)
  }

  get size(): number {
    return this.#byName.size
  }

  /** Throws `handler_invalid` if a different edge has the same name. */
  add(edge: Edge): void {
    const known = this.#byName.get(edge.name)
    if (known !== undefined) {
      if (known.edge === edge || shapeOf(known.edge) === shapeOf(edge)) return
      throw new FleethookError('handler_invalid', `Two different edges have the name \`${edge.name}\`.`, {
        hint: 'Give one of them another name with `named`. The stored state and the ids of occurrences depend on the name.',
      })
    }
    const indexed: IndexedEdge = { edge, number: this.#byName.size, foundIn: 0 }
    this.#byName.set(edge.name, indexed)
    if (edge.begins !== undefined) {
      this.beginning.set(markOf(edge.name), edge)
      this.rules = [...this.beginning.keys()].toSorted().join(' ')
    }
    if (edge.daily === true) this.#daily.push(indexed)
    for (const trace of edge.traces ?? []) this.traces.set(trace.name, trace)
    if (edge.timing !== undefined) {
      this.timing ??= edge.timing
      this.onTiming?.(this.timing)
    }
    for (const topic of edge.topics) {
      const others = this.#byTopic.get(topic)
      if (others === undefined) this.#byTopic.set(topic, [indexed])
      else others.push(indexed)
    }
    for (const { name } of edge.facts ?? []) {
      const others = this.#byFact.get(name)
      if (others === undefined) this.#byFact.set(name, [indexed])
      else others.push(indexed)
    }
    for (const field of edge.fields) {
      let ofField = this.#byField.get(field)
      if (ofField === undefined) {
        ofField = { everywhere: [], bounded: new Map() }
        this.#byField.set(field, ofField)
      }
      if (edge.bounds === undefined) {
        ofField.everywhere.push(indexed)
        continue
      }
      const { boundsField = 'Location' } = edge
      const grid = ofField.bounded.get(boundsField) ?? new Grid()
      ofField.bounded.set(boundsField, grid)
      grid.add(indexed, edge.bounds)
    }
  }

  has(name: string): boolean {
    return this.#byName.has(name)
  }

  get(name: string): Edge | undefined {
    return this.#byName.get(name)?.edge
  }

  /** In the order of registration. */
  numberOf(name: string): number {
    return this.#byName.get(name)?.number ?? -1
  }

  /** The edges that a message can make happen, also by what it says of `facts`, and the edges with the names `others`, in the order of registration. */
  touched(
    { topic }: FleetEvent,
    fields: readonly string[],
    before: AnyVehicleView,
    after: AnyVehicleView,
    others: readonly string[] = [],
    facts: readonly string[] = [],
  ): readonly Edge[] {
    if (this.#byName.size === 0) return []
    this.#searches += 1
    const found: IndexedEdge[] = []
    const add = (indexed: IndexedEdge): void => {
      if (indexed.foundIn === this.#searches) return
      indexed.foundIn = this.#searches
      found.push(indexed)
    }
    if (this.#daily.length > 0 && before.seenAt === undefined) this.#daily.forEach(add)
    this.#byTopic.get(topic)?.forEach(add)
    for (const name of others) {
      const other = this.#byName.get(name)
      if (other !== undefined) add(other)
    }
    for (const fact of facts) this.#byFact.get(fact)?.forEach(add)
    for (const field of fields) {
      const ofField = this.#byField.get(field)
      if (ofField === undefined) continue
      ofField.everywhere.forEach(add)
      for (const [boundsField, grid] of ofField.bounded) {
        const [from, to] = [before.value(boundsField), after.value(boundsField)]
        // The first position is a change of all areas, and an edge may have remembered something before it was known.
        if (to === undefined || from === undefined) grid.all(add)
        for (const value of [from, to]) if (isLocation(value)) grid.at(value, add)
      }
    }
    return found.toSorted((a, b) => a.number - b.number).map(({ edge }) => edge)
  }
}

/** A short text that differs for another text. Stored with each vehicle, so the texts themselves would be too long. */
export function markOf(name: string): string {
  let [one, other] = [0x811c_9dc5, 0x1234_5678]
  for (const character of name) {
    one = Math.imul(one ^ (character.codePointAt(0) ?? 0), 0x0100_0193)
    other = Math.imul(other ^ one, 0x85eb_ca6b) + 1
  }
  return ((one >>> 0) ^ (other >>> 0)).toString(36).replace('-', 'z')
}

function isLocation(value: unknown): value is Location {
  return typeof value === 'object' && value !== null && 'latitude' in value && 'longitude' in value
}

/** Edges with the same name must have the same shape. Two `detect` functions cannot be compared. */
function shapeOf({ fields, reads, topics: ofTopics, bounds, boundsField, shape, facts, readsFacts }: Edge): string {
  return JSON.stringify([fields, reads, ofTopics, bounds, boundsField, shape, namesOf(facts), namesOf(readsFacts)])
}

const namesOf = (facts: Edge['facts']): readonly string[] | undefined => facts?.map(({ name }) => name)

/** The level with the smallest cells, which are some meters wide. */
const finest = 22

/**
 * Finds the rectangles that contain a position. Each rectangle is stored on the level with the smallest cells that are at least as
 * large as it is, so in at most four cells. A search reads one cell of each level that is in use.
 */
class Grid {
  readonly #levels = new Map<number, Map<number, { readonly indexed: IndexedEdge; readonly bounds: Bounds }[]>>()

  add(indexed: IndexedEdge, bounds: Bounds): void {
    const { south, west, north, east } = bounds
    const size = Math.max(north - south, east - west)
    let level = 0
    while (level < finest && cellDegrees(level + 1) >= size) level += 1
    let cells = this.#levels.get(level)
    if (cells === undefined) {
      cells = new Map()
      this.#levels.set(level, cells)
    }
    for (let row = rowOf(south, level); row <= rowOf(north, level); row += 1)
      for (let column = columnOf(west, level); column <= columnOf(east, level); column += 1) {
        const key = keyOf(row, column)
        const held = cells.get(key)
        if (held === undefined) cells.set(key, [{ indexed, bounds }])
        else held.push({ indexed, bounds })
      }
  }

  all(found: (indexed: IndexedEdge) => void): void {
    for (const cells of this.#levels.values())
      for (const held of cells.values()) for (const { indexed } of held) found(indexed)
  }

  at(location: Location, found: (indexed: IndexedEdge) => void): void {
    const { latitude, longitude } = location
    for (const [level, cells] of this.#levels) {
      const held = cells.get(keyOf(rowOf(latitude, level), columnOf(longitude, level)))
      if (held === undefined) continue
      for (const { indexed, bounds } of held) if (isWithin(bounds, location)) found(indexed)
    }
  }
}

/** Whether a location lies in a box. */
export function isWithin({ south, west, north, east }: Bounds, at: Location): boolean {
  return at.latitude >= south && at.latitude <= north && at.longitude >= west && at.longitude <= east
}

const cellDegrees = (level: number): number => 360 / 2 ** level
const rowOf = (latitude: number, level: number): number => Math.floor((latitude + 90) / cellDegrees(level))
const columnOf = (longitude: number, level: number): number => Math.floor((longitude + 180) / cellDegrees(level))
const keyOf = (row: number, column: number): number => row * 2 ** 24 + column
