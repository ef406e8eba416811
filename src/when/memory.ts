import type { EdgeResult } from '../vehicles/edge.ts'
import type { Facts } from '../vehicles/facts.ts'
import type { Definition } from './definition.ts'
import { fold, type Folded, type Known, nothingKnown, type Running, type Told, withoutRunning } from './fold.ts'
import { overAt } from './intervals.ts'
import { type Sample, samplesOf, textOf } from './samples.ts'
import { compared, type Episode, episodeOf, hasAll, hashOf, mostTold, tellNext } from './telling.ts'

/** The most characters of samples. When there are more, the older half is folded. */
const mostSamples = 5_000

/** The same for an episode that facts tell apart: a fact that is set late must still find the samples of its time. */
const mostApart = 30_000

/** What most messages change: the newest time of the vehicle, when that arrived, and the time of the sample that came last. */
interface Last {
  heard: number
  arrived: number
  noted: number
}

/** What most messages need to know. */
interface Head {
  shape: string
  /** What the condition is for as long as nothing begins or ends. `null`: a value of the condition may decide something. */
  is: boolean | null
  /** Values that are older may change what was told, or is to be told. */
  calm: number
  /** When the newest silence ended that was long enough: an older message may say that there was none. */
  hole: number
  /** The end of the newest gap that is among the samples, by the receiver's clock. */
  gapMs: number
  /** When samples were folded last, by arrival (0: under another definition), and how many were left then. */
  checked: number
  old: number
}

/** What an edge remembers of a vehicle: lines of JSON. What most messages write comes first: of a row whose end stays the same, Postgres logs only the rest. */
export class Memory {
  readonly last: Last
  readonly head: Head
  /** The newest one comes first. */
  samples: string
  /** The lines of the head and of what was told: most messages change nothing of them. */
  #lines: readonly [head: string, told: string]
  #known: string
  readonly #definition: Definition
  readonly #vin: string
  readonly #facts: Facts | undefined

  constructor(definition: Definition, vin: string, text?: string, facts?: Facts) {
    const [last, samples = '', head = '', told = '[]', known] = text?.split('\n') ?? []
    const { shape } = definition
    this.#definition = definition
    this.#vin = vin
    this.#facts = facts
    this.last = last ? JSON.parse(last) : { heard: 0, arrived: 0, noted: 0 }
    this.head = head ? JSON.parse(head) : { shape, is: null, calm: 0, hole: 0, gapMs: 0, checked: 0, old: 0 }
    this.#lines = [head, told]
    this.#known = known ?? JSON.stringify(nothingKnown(definition))
    this.samples = samples
    if (this.head.shape !== shape) this.#change(told)
  }

  /** A text that an older version wrote, or nobody, is no memory. */
  static read(definition: Definition, vin: string, text: string, facts?: Facts): Memory | undefined {
    try {
      const memory = new Memory(definition, vin, text, facts)
      const { timeline }: Known = JSON.parse(memory.#known)
      return typeof timeline.at === 'number' && memory.last.heard >= 0 ? memory : undefined
    } catch {
      return undefined
    }
  }

  /** Another definition had other fields, in another order. What was told stays as it was told. */
  #change(told: string): void {
    const { shape, fields } = this.#definition
    Object.assign(this.head, { shape, checked: 0, old: 0 })
    this.#lines = [this.#lines[0], told.replaceAll(/"hash":"[^"]*"/g, '"hash":""')]
    const found: Known = JSON.parse(this.#known)
    const kept = samplesOf(this.samples, this.last.noted, found.fields)
    const added = fields.filter((field) => !found.fields.includes(field))
    const since = { ...found.since, ...Object.fromEntries(added.map((field) => [field, this.last.heard])) }
    this.#known = JSON.stringify({ ...found, fields, since })
    this.add(
      kept.filter(([, field]) => typeof field === 'number' || fields.includes(field)),
      '',
    )
  }

  get text(): string {
    return [JSON.stringify(this.last), this.samples, ...this.#lines, this.#known].join('\n')
  }

  get #mostSamples(): number {
    return this.#definition.by.length > 0 ? mostApart : mostSamples
  }

  /** Whether it is time to fold samples. */
  isFull(arrivedMs: number): boolean {
    return this.samples.length > this.#mostSamples || arrivedMs - this.head.checked >= this.#definition.corrects
  }

  /** The newest episode, unless it was told exactly as it is known now. */
  open(hasGap: boolean): Episode | undefined {
    const definition = this.#definition
    const running = this.#fold(this.#kept()).found.at(-1)
    if (running === undefined) return undefined
    compared(definition, [running], this.#told, Infinity, 0)
    const { end, told } = running
    // The samples of an episode that was told as over by silence do not say that it is over.
    const over: Running = end === undefined ? { ...running, end: this.last.heard, cut: true } : running
    if (told !== undefined && ['', hashOf(this.#episodeOf(over))].includes(told.hash)) return undefined
    if (hasGap) running.gap = true
    return this.#episodeOf(running)
  }

  /** Finds the episodes in all that is remembered, compares them with what was told, and tells one if it is time. */
  evaluate(added: readonly Sample[], arrivedMs: number, dueMs: number): EdgeResult<Episode> {
    const { last, head } = this
    const definition = this.#definition
    // The vehicle's time: the time of its newest message, and what has passed since it arrived.
    const now = Math.max(dueMs, last.heard + Math.max(0, arrivedMs - last.arrived))
    const samples = [...this.#kept(), ...added]
    this.add(added)
    const before: Known = JSON.parse(this.#known)
    const foldedTo = before.timeline.at
    const until = { now, heard: last.heard, facts: this.#facts }
    const { found, known, changesAt } = fold(definition, this.#vin, before, samples, until)
    const isFull = this.samples.length > this.#mostSamples
    const both = compared(definition, found, this.#told, foldedTo, arrivedMs)
    const { happened, due, told } = tellNext(definition, this.#vin, both, { now, heard: last.heard, arrivedMs, isFull })
    this.#settle(samples, both.all, told, due === Infinity, arrivedMs)
    this.#note(known, now)
    this.#lines = [JSON.stringify(head), JSON.stringify(told)]
    const isOn = known.running !== undefined && known.running.end === undefined
    const silent = Math.max(0, known.timeline.listens - last.heard) + last.arrived + definition.silence
    const next = isOn && changesAt > last.heard + definition.silence ? due : Math.min(due, changesAt)
    const byArrival = next === Infinity
    const folds = this.samples === '' ? Infinity : head.checked + definition.corrects
    const wakes = byArrival ? Math.ceil(isOn ? silent : folds) : next
    const timer = { due: wakes === Infinity ? null : wakes, since: known.running?.start ?? last.heard, byArrival }
    return happened === undefined ? { memory: this.text, timer } : { happened, memory: this.text, timer }
  }

  /** What messages may be appended without being read. */
  #note({ running, timeline }: Known, now: number): void {
    const { head } = this
    const { waits, tellsEach } = this.#definition
    const { start = 0, end = Infinity } = running ?? {}
    const over = running === undefined ? 0 : overAt(this.#definition, running)
    const isOn = running !== undefined && running.end === undefined
    head.is = isOn || (timeline.was === false && now >= over ? false : null)
    // An older message may say that there was no silence, and a counter that goes on, too.
    if (timeline.isCut === true || tellsEach < Infinity)
      head.calm = running === undefined && timeline.isCut !== true ? 0 : Number.MAX_SAFE_INTEGER
    else if (running === undefined) head.calm = timeline.endedAt ?? 0
    else if (now < over) head.calm = start
    else head.calm = hasAll(this.#definition, running) ? end + waits + 1 : Number.MAX_SAFE_INTEGER
  }

  /** Folds what arrived long ago: in the order of arrival, so that an upload after hours is still sorted. Nothing is folded that is not told yet. */
  #settle(
    samples: readonly Sample[],
    all: readonly Running[],
    told: readonly Told[],
    isAllTold: boolean,
    arrivedMs: number,
  ): void {
    const { head, last } = this
    const { joins, corrects } = this.#definition
    const isOld = arrivedMs - head.checked >= corrects
    const times = samples.map(([at]) => at)
    let foldTo = isOld ? Math.max(0, ...times.slice(0, head.old)) : 0
    if (this.samples.length > this.#mostSamples || told.length > mostTold)
      foldTo = Math.max(foldTo, times.toSorted((one, other) => one - other)[times.length >> 1] ?? 0)
    for (const { closed = Infinity, told: one } of all)
      if (one === undefined || one.wrong !== undefined) foldTo = Math.min(foldTo, closed - 1)
    if (!isOld && !times.some((at) => at <= foldTo)) return
    const left = samples.filter(([at]) => at > foldTo)
    const { known } = this.#fold(
      samples.filter(([at]) => at <= foldTo),
      true,
    )
    // Nothing corrects it any more.
    const isFinal = left.length === 0 && last.heard > (known.running?.end ?? Infinity) + Math.max(joins, corrects)
    head.checked = arrivedMs
    head.old = left.length
    this.#known = JSON.stringify(isFinal && isAllTold ? withoutRunning(this.#definition, known) : known)
    this.add(left, '')
  }

  #kept(): Sample[] {
    return samplesOf(this.samples, this.last.noted, this.#definition.fields)
  }

  get #told(): readonly Told[] {
    return JSON.parse(this.#lines[1])
  }

  #fold(samples: readonly Sample[], isPart = false): Folded {
    return fold(this.#definition, this.#vin, JSON.parse(this.#known), samples, { isPart, facts: this.#facts })
  }

  #episodeOf(of: Running): Episode {
    return episodeOf(this.#definition, this.#vin, of, this.last.heard)
  }

  add(samples: readonly Sample[], kept: string = this.samples): this {
    this.samples = textOf(samples, this.last.noted, this.#definition.fields) + kept
    this.last.noted = samples.at(-1)?.[0] ?? this.last.noted
    return this
  }
}
