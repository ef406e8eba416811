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

/** What the business said of a vehicle, over time. It never changes: what is said next makes another one. Times are by the business's clock. */
export class Facts {
  /** Edges have seen what was to be seen up to this time. */
  readonly atMs: number
  /** When something changes next. `undefined`: nothing is planned. */
  readonly nextMs: number | undefined
  readonly #lines: ReadonlyMap<string, Line>
  /** About the room that they take in memory. */
  readonly bytes: number

  private constructor(lines: ReadonlyMap<string, Line>, atMs: number) {
    this.#lines = lines
    this.atMs = atMs
    let [next, bytes] = [Infinity, 0]
    for (const { base, spans } of lines.values()) {
      bytes += 80 + 60 * base.length + 80 * spans.length
      for (const [from, value] of base) {
        bytes += sizeOf(value)
        if (from > atMs) next = Math.min(next, from)
      }
      for (const [from, until, value] of spans) {
        bytes += sizeOf(value)
        if (until > atMs) next = Math.min(next, from > atMs ? from : until)
      }
    }
    this.bytes = bytes
    this.nextMs = next === Infinity ? undefined : next
  }

  static read(stored: StoredFacts | undefined): Facts | undefined {
    if (stored === undefined) return undefined
    const { at, of, spans = {} } = stored
    return new Facts(
      new Map(Object.entries(of).map(([name, base]) => [name, { base, spans: spans[name] ?? none }])),
      at,
    )
  }

  get stored(): StoredFacts {
    const lines = [...this.#lines]
    const spans = lines.flatMap(([name, line]) => (line.spans.length > 0 ? [[name, line.spans] as const] : []))
    return {
      at: this.atMs,
      of: Object.fromEntries(lines.map(([name, { base }]) => [name, base])),
      spans: spans.length > 0 ? Object.fromEntries(spans) : undefined,
    }
  }

  get names(): readonly string[] {
    return [...this.#lines.keys()]
  }

  /** The value of a fact at a time. `undefined`: it had none. */
  at(name: string, ms: number): FieldValue | undefined {
    const line = this.#lines.get(name)
    return line === undefined ? undefined : (valueAt(line, ms) ?? undefined)
  }

  /** When a fact became another one, the first one first. */
  steps(name: string): readonly FactStep[] {
    const line = this.#lines.get(name)
    return line === undefined ? none : stepsOf(line)
  }

  /** All facts as they are at a time. */
  known(ms: number): readonly KnownFact[] {
    return this.names.map((name) => {
      const steps = this.steps(name)
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
    return this.names.filter((name) => this.steps(name).some(([from]) => from === ms))
  }

  /** The same facts, of which edges have seen all up to a time. */
  passedTo(ms: number): Facts {
    return this.nextMs === undefined || ms < this.nextMs ? this : new Facts(this.#lines, ms)
  }

  /** With what the business said. Edges see all up to now. `undefined`: there is no room. */
  static told(known: Facts | undefined, event: FactsEvent, nowMs: number): Facts | undefined {
    const atMs = Math.max(nowMs, known?.atMs ?? nowMs)
    const from = event.from?.getTime() ?? atMs
    const until = event.until?.getTime()
    const lines = new Map(known === undefined ? [] : known.#lines)
    for (const [name, value] of Object.entries(event.facts)) {
      const line = lines.get(name) ?? nothing
      const next = until === undefined ? endless(line, from, value) : between(line, [from, until, value])
      lines.set(name, trimmed(next, atMs))
    }
    const isTooMuch = [...lines.values()].some(
      ({ base, spans }) => planned(base, atMs) + planned(spans, atMs) > mostPlanned,
    )
    const facts = new Facts(lines, atMs)
    return isTooMuch || JSON.stringify(facts.stored).length > mostLength ? undefined : facts
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
    ? value.length
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
