import type { FactsEvent } from '../events/event.ts'
import type { FieldValue } from '../events/values.ts'
import type { Fact, KnownFact } from './fact.ts'

/** From a time on, a fact has a value. `null`: none. */
export type FactStep = readonly [fromMs: number, value: FieldValue]

/** From one time to another. */
type Span = readonly [fromMs: number, untilMs: number, value: FieldValue]

/**
 * One fact over time: what was said without an end (of two, the later `from` counts), and over it what was said with one, such as a booking. So a
 * booking ends in what was said without it.
 */
interface Line {
  readonly base: readonly FactStep[]
  readonly spans: readonly Span[]
}

/** Facts as they are stored with a state. A fact without spans is only its steps. */
export interface StoredFacts {
  /** Edges have seen them up to this time. */
  readonly at: number
  readonly of: Readonly<Record<string, readonly FactStep[]>>
  readonly spans?: Readonly<Record<string, readonly Span[]>> | undefined
}

/** The most steps, and the most spans, of a fact that are over. */
const mostPast = 20

/** The most that are planned. */
const mostPlanned = 100

/** The most characters of all facts of a vehicle. */
const mostLength = 65_536

const none: readonly never[] = []

/** The names of facts, each with a position that is the same in all vehicles of a process. Declared facts come first. */
export class FactNames {
  readonly all: string[] = []
  readonly #positions = new Map<string, number>()

  constructor(declared: Iterable<string>) {
    for (const name of declared) this.positionOf(name)
  }

  find(name: string): number | undefined {
    return this.#positions.get(name)
  }

  /** A state can have facts of another version, so a new name gets a position. */
  positionOf(name: string): number {
    const known = this.#positions.get(name)
    if (known !== undefined) return known
    const position = this.all.push(name) - 1
    this.#positions.set(name, position)
    return position
  }
}

/**
 * What the business said of a vehicle, over time. It never changes: what is said next makes another one. Times are by the business's clock.
 *
 * Nearly every question is about now. So it keeps lists of what holds now, and what is over or planned as text, which takes less room than its objects.
 */
export class Facts {
  /** Edges have seen what was to be seen up to this time. */
  readonly atMs: number
  /** When something changes next. `undefined`: nothing is planned. */
  readonly nextMs: number | undefined
  /** About the room that they take in memory. */
  readonly bytes: number
  readonly #names: FactNames
  /** By position: what holds from `#since` until `nextMs`. `null`: none. `undefined`: nothing was ever said. */
  readonly #values: readonly (FieldValue | undefined)[]
  readonly #since: readonly number[]
  /** The lines of facts that had other values, or will have. */
  readonly #others: string | undefined
  readonly #opened: ReadonlyMap<string, Line> | undefined

  /** `text`: of these lines, if they stay open. */
  private constructor(names: FactNames, lines: ReadonlyMap<string, Line>, atMs: number, text?: string) {
    const values: (FieldValue | undefined)[] = []
    const since: number[] = []
    const others: (readonly [name: string, line: Line])[] = []
    let [next, bytes] = [Infinity, 200]
    for (const [name, line] of lines) {
      const steps = stepsOf(line)
      const [fromMs, value] = steps.findLast(([from]) => from <= atMs) ?? [-Infinity, null]
      const nextStep = steps.find(([from]) => from > atMs)
      if (nextStep !== undefined) next = Math.min(next, nextStep[0])
      if (line.spans.length > 0 || line.base.length > 1 || nextStep !== undefined) others.push([name, line])
      const position = names.positionOf(name)
      for (let filled = values.length; filled <= position; filled += 1) {
        values.push(undefined)
        since.push(0)
      }
      values[position] = value
      since[position] = fromMs
      bytes += sizeOf(value)
    }
    this.#names = names
    // A list that has grown has spare room. A copy of it has none.
    this.#values = values.slice()
    this.#since = since.slice()
    this.#others = text ?? (others.length === 0 ? undefined : JSON.stringify(others))
    this.#opened = text === undefined ? undefined : lines
    this.atMs = atMs
    this.nextMs = next === Infinity ? undefined : next
    this.bytes = bytes + 16 * values.length + (this.#others?.length ?? 0)
  }

  static read(stored: StoredFacts | undefined, names: FactNames): Facts | undefined {
    if (stored === undefined) return undefined
    const { at, of, spans = {} } = stored
    const lines = Object.entries(of).map(([name, base]) => [name, { base, spans: spans[name] ?? none }] as const)
    return new Facts(names, new Map(lines), at)
  }

  get stored(): StoredFacts {
    const lines = [...this.#lines()]
    const spans = lines.flatMap(([name, line]) => (line.spans.length > 0 ? [[name, line.spans] as const] : []))
    return {
      at: this.atMs,
      of: Object.fromEntries(lines.map(([name, { base }]) => [name, base])),
      spans: spans.length > 0 ? Object.fromEntries(spans) : undefined,
    }
  }

  /** The same facts, for somebody who asks for much of the past. Not to be kept, because it takes more memory. */
  opened(): Facts {
    return this.#others === undefined ? this : new Facts(this.#names, this.#lines(), this.atMs, this.#others)
  }

  /** The value of a fact at a time. `undefined`: it had none. */
  at(name: string, ms: number): FieldValue | undefined {
    const position = this.#names.find(name) ?? -1
    const [value, since] = [this.#values[position], this.#since[position] ?? Infinity]
    if (value === undefined) return undefined
    if (since <= ms && ms < (this.nextMs ?? Infinity)) return value ?? undefined
    const line = this.#lines().get(name)
    return line === undefined ? undefined : (valueAt(line, ms) ?? undefined)
  }

  /** When a fact became another one, the first one first. */
  steps(name: string): readonly FactStep[] {
    const line = this.#lines().get(name)
    return line === undefined ? none : stepsOf(line)
  }

  /** All facts as they are at a time. */
  known(ms: number): readonly KnownFact[] {
    return [...this.#lines()].map(([name, line]) => {
      const steps = stepsOf(line)
      const last = steps.findLast(([from]) => from <= ms)
      const next = steps.find(([from]) => from > ms)
      return {
        name,
        value: last?.[1] ?? undefined,
        since: last && new Date(last[0]),
        nextAt: next && new Date(next[0]),
      }
    })
  }

  /** The facts of which something is planned for this time. */
  changing(ms: number): readonly string[] {
    return [...this.#lines()].flatMap(([name, line]) => (stepsOf(line).some(([from]) => from === ms) ? [name] : []))
  }

  /** The same facts, of which edges have seen all up to a time. */
  passedTo(ms: number): Facts {
    if (this.nextMs === undefined || ms < this.nextMs) return this
    return new Facts(this.#names, this.#lines(), ms)
  }

  /** With what the business said. Edges see all up to now. `undefined`: there is no room. */
  static told(known: Facts | undefined, event: FactsEvent, nowMs: number, names: FactNames): Facts | undefined {
    const atMs = Math.max(nowMs, known?.atMs ?? nowMs)
    const from = event.from?.getTime() ?? atMs
    const until = event.until?.getTime()
    const lines = new Map(known === undefined ? none : known.#lines())
    for (const [name, value] of Object.entries(event.facts)) {
      const line = lines.get(name) ?? nothing
      const next = until === undefined ? endless(line, from, value) : between(line, [from, until, value])
      lines.set(name, trimmed(next, atMs))
    }
    const isTooMuch = [...lines.values()].some(
      ({ base, spans }) => planned(base, atMs) + planned(spans, atMs) > mostPlanned,
    )
    const facts = new Facts(names, lines, atMs)
    return isTooMuch || JSON.stringify(facts.stored).length > mostLength ? undefined : facts
  }

  /** By name, in the order of their positions. */
  #lines(): ReadonlyMap<string, Line> {
    if (this.#opened !== undefined) return this.#opened
    const others: readonly (readonly [string, Line])[] = this.#others === undefined ? none : JSON.parse(this.#others)
    const lines = new Map<string, Line>()
    for (const [position, value] of this.#values.entries()) {
      const [name, since] = [this.#names.all[position], this.#since[position]]
      if (name !== undefined && since !== undefined && value !== undefined)
        lines.set(name, { base: [[since, value]], spans: none })
    }
    for (const [name, line] of others) lines.set(name, line)
    return lines
  }
}

/** The value of a fact at a time. `undefined`: it had none. */
export function valueOf<Value>(fact: Fact<string, Value>, facts: Facts | undefined, ms: number): Value | undefined {
  const stored = facts?.at(fact.name, ms)
  return stored === undefined ? undefined : fact.read(stored)
}

const nothing: Line = { base: none, spans: none }

const sizeOf = (value: FieldValue): number =>
  typeof value === 'string'
    ? 16 + value.length
    : typeof value === 'object' && value !== null
      ? 4 * JSON.stringify(value).length
      : 8

const planned = (steps: readonly (readonly [number, ...unknown[]])[], atMs: number): number =>
  steps.filter(([from]) => from > atMs).length

/** Without an end: it goes on until what is said of a later time. What holds at `from` ends there, but not what is planned for later. */
function endless({ base, spans }: Line, from: number, value: FieldValue): Line {
  const step: FactStep = [from, value]
  const others = base.filter(([each]) => each !== from)
  const cut = spans.flatMap((span): Span[] => {
    const [start, end, held] = span
    if (start > from || end <= from) return [span]
    return start === from ? [] : [[start, from, held]]
  })
  return { base: [...others, step].toSorted(([one], [other]) => one - other), spans: cut }
}

/** With an end: it stands over what was said before. */
function between({ base, spans }: Line, [from, until, value]: Span): Line {
  const others = spans.flatMap((span): Span[] => {
    const [start, end, held] = span
    if (end <= from || start >= until) return [span]
    const before: Span[] = start < from ? [[start, from, held]] : []
    return end > until ? [...before, [until, end, held]] : before
  })
  return { base, spans: [...others, [from, until, value] as const].toSorted(([one], [other]) => one - other) }
}

/** Without what is over for long. What holds now stays. */
function trimmed({ base, spans }: Line, atMs: number): Line {
  const past = base.filter(([from]) => from <= atMs).length
  const over = spans.filter(([, until]) => until <= atMs).length
  return { base: base.slice(Math.max(0, past - mostPast)), spans: spans.slice(Math.max(0, over - mostPast)) }
}

/** `null`: it has none. */
function valueAt({ base, spans }: Line, ms: number): FieldValue {
  for (const [from, until, value] of spans) if (from <= ms && ms < until) return value
  let found: FieldValue = null
  for (const [from, value] of base) {
    if (from > ms) break
    found = value
  }
  return found
}

function stepsOf(line: Line): readonly FactStep[] {
  if (line.spans.length === 0) return line.base
  const times = [...line.base.map(([from]) => from), ...line.spans.flatMap(([from, until]) => [from, until])]
  const inOrder = [...new Set(times)].toSorted((one, other) => one - other)
  return inOrder.map((ms): FactStep => [ms, valueAt(line, ms)])
}

/** What is planned for a time, as edges see it. */
export function plannedEvent(vin: string, facts: Facts, atMs: number, receivedAt: Date): FactsEvent {
  const at = new Date(atMs)
  return {
    topic: 'facts',
    vin,
    createdAt: at.toISOString(),
    at,
    receivedAt,
    id: `facts:${vin}:${atMs}`,
    format: null,
    raw: null,
    meta: {},
    facts: Object.fromEntries(facts.changing(atMs).map((name) => [name, facts.at(name, atMs) ?? null])),
    from: at,
  }
}
