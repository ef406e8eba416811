import type { AnyVehicleView, EdgeMemory } from '../vehicles/edge.ts'
import { valueOf } from '../vehicles/facts.ts'
import { Snapshot, VehicleState } from '../vehicles/state.ts'
import type { Definition } from './definition.ts'
import type { Entry } from './ledger.ts'
import { freshMs } from './measures.ts'
import { TimesOfFacts } from './times-of-facts.ts'

/** From when to when an episode was. It is interrupted or over since `end`, and nothing joins it when it is `cut`, `split`, or the next one began: `closed`. */
export interface Interval {
  start: number
  end?: number
  paused: number
  cut?: true
  split?: true
  /** It began, or ended, because a fact by which it is told apart changed. */
  handed?: true
  passedOn?: true
  closed?: number
  /** Messages may be missing. */
  gap?: true
  /** Values up to this time came before a gap, and it ended before they came again. */
  gapAfter?: number
  /** When the one before ended. */
  before?: number | undefined
  /** Values up to these times are uncertain at its start, or too old to be the values of its start. Not stored. */
  gapAt?: number
  staleAt?: number
  /** Its interruptions among the samples. Not stored. */
  pauses?: (readonly [from: number, to: number])[]
}

/** What is known of the conditions up to a time. */
export interface Timeline {
  at: number
  /** What the condition was last. `null`: not known. */
  was: boolean | null
  /** Values up to these times are uncertain, or too old to be the values of a start. */
  gapAt: number
  staleAt: number
  /** The receiver listens again since this time. */
  listens: number
  /** When `splits` was true last. Without `to`, it is. */
  split?: Split
  /** It ended by silence, and nothing was heard of its conditions since. */
  isCut?: true
  /** When the newest one ended that is forgotten. */
  endedAt?: number | undefined
  /** What conditions remember. */
  traces?: Record<string, EdgeMemory>
}

interface Split {
  readonly from: number
  readonly to?: number
}

/** All that was said at one time. */
export interface Moment {
  readonly at: number
  /** Believed values of the fields of conditions. */
  readonly entries: readonly (readonly [field: string, entry: Entry])[]
  /** Whether a counter grew. */
  readonly grew: boolean
  /** Gaps that ended, by when the receiver listened again. */
  readonly gaps: readonly number[]
}

/** Whether it is long enough. A part that was handed over counts however short it is. */
export const isLong = ({ atLeast }: Definition, { start, end = Infinity, handed, passedOn }: Interval): boolean =>
  handed === true || passedOn === true || end - start >= atLeast

/** When nothing can join an episode any more. */
export const overAt = ({ joins }: Definition, { end = Infinity, cut, split, passedOn }: Interval): number =>
  joins === 0 || cut === true || split === true || passedOn === true ? end : end + joins + 1

/** Finds when episodes began and ended, moment by moment. */
export class Intervals {
  readonly timeline: Timeline
  /** The newest one. */
  running: Interval | undefined
  readonly closed: Interval[] = []
  readonly splits: Split[]
  readonly #definition: Definition
  readonly #vin: string
  readonly #values: Map<string, Entry>
  readonly #facts: TimesOfFacts
  /** Time went on to this moment. */
  #passedTo = 0

  constructor(
    definition: Definition,
    vin: string,
    timeline: Timeline,
    running?: Interval,
    values?: Map<string, Entry>,
    facts: TimesOfFacts = new TimesOfFacts(definition, undefined),
  ) {
    this.#facts = facts
    this.timeline = timeline
    this.running = running
    this.splits = timeline.split === undefined ? [] : [timeline.split]
    this.#definition = definition
    this.#vin = vin
    this.#values = values ?? new Map()
  }

  /** In the order of time. */
  get all(): readonly Interval[] {
    return this.running === undefined ? this.closed : [...this.closed, this.running]
  }

  take({ at, entries, grew, gaps }: Moment): void {
    const { timeline } = this
    // Before the first moment there is nothing that could change by itself.
    if (timeline.at === 0) this.#passedTo = at
    if (at >= timeline.at) this.pass(at)
    for (const [field, entry] of entries) this.#note(field, entry, at)
    if (entries.length > 0 || this.#definition.isAged) this.#decide(at)
    else if (grew && timeline.isCut === true && this.#definition.during.test(this.#look(-1, at)) === true)
      // It was not over: the counter went on.
      this.#begin(at, true)
    timeline.at = Math.max(at, timeline.at)
    for (const listens of gaps) this.#gap(listens)
  }

  /** Time goes on to this moment, and the vehicle was heard at another one. */
  pass(at: number, heard: number = 0): void {
    const { timeline } = this
    const last = Math.max(heard, timeline.at)
    const cutAt = Math.max(last, timeline.listens) + this.#definition.silence
    for (let due = this.changesAt; due <= at && (due < cutAt || !this.#isOn); due = this.changesAt) {
      if (this.#facts.isHandOver(due)) this.#handOver(due)
      if (this.#isTimed(due)) this.#decide(due)
      this.#passedTo = due
    }
    this.#passedTo = Math.max(at, this.#passedTo)
    const { running } = this
    if (running === undefined || running.end !== undefined || at < cutAt) return
    Object.assign(running, { end: last, cut: true })
    // It begins again with the next value of its condition, or of a counter that went on.
    Object.assign(timeline, { was: false, isCut: true })
  }

  get #isOn(): boolean {
    return this.running !== undefined && this.running.end === undefined
  }

  /** When something may be another one although nothing is said: after the moment to which time went on. `Infinity`: never. */
  get changesAt(): number {
    const passedTo = Math.max(this.timeline.at, this.#passedTo)
    const { running } = this
    const isOver = running === undefined || passedTo >= overAt(this.#definition, running)
    return Math.min(this.#conditionsAt(passedTo), isOver ? Infinity : this.#facts.nextHandOver(passedTo))
  }

  /** When a condition may be another one after this moment. `Infinity`: never. */
  #conditionsAt(passedTo: number): number {
    const { timed } = this.#definition
    const byFacts = this.#facts.nextChange(passedTo)
    if (timed.length === 0) return byFacts
    const times = timed.flatMap((condition) => condition.changesAt?.(this.#look(-1, passedTo)) ?? [])
    return Math.min(byFacts, ...times.filter((ms) => ms > passedTo))
  }

  /** Whether a condition may be another one at this moment, to which time goes on. */
  #isTimed(at: number): boolean {
    return this.#conditionsAt(Math.max(this.timeline.at, this.#passedTo)) === at
  }

  #note(field: string, entry: Entry, at: number): void {
    const before = this.#values.get(field)?.[1]
    this.#values.set(field, entry)
    const { timeline } = this
    const { facts } = this.#facts
    for (const trace of this.#definition.traces)
      if (trace.field === field)
        timeline.traces = {
          ...timeline.traces,
          [trace.name]: trace.next(timeline.traces?.[trace.name], entry[1], at, {
            before,
            fact: (given) => valueOf(given, facts, at),
          }),
        }
  }

  /** What conditions see at a moment. What is certain was reported after the last gap, so times stand for the numbers of messages. */
  #look(gapAt: number, at: number): AnyVehicleView {
    const { slots } = this.#definition
    const state = VehicleState.unknown(this.#vin, slots).with({
      values: slots.names.map((field) => this.#values.get(field)?.[1]),
      times: slots.names.flatMap((field) => Array<number>(3).fill(this.#values.get(field)?.[0] ?? 0)),
      memory: this.timeline.traces,
      facts: this.#facts.facts,
    })
    return new Snapshot(state, at, gapAt, { momentMs: at, factsMs: at })
  }

  /** Whether one begins, goes on or ends, as the condition says at a moment. A value that is uncertain counts, and the episode says so. */
  #decide(at: number): void {
    const { during, until, splits } = this.#definition
    const { timeline, running } = this
    const view = this.#look(timeline.gapAt, at)
    const certain = during.test(view)
    const is = certain ?? during.test(this.#look(-1, at))
    const isUncertain = certain === undefined
    delete timeline.isCut
    this.#setSplit(at, splits?.test(view) === true)
    const isOn = running !== undefined && running.end === undefined
    if (isOn && (until === undefined ? is === false : until.test(view) === true)) {
      running.end = at
      if (isUncertain || at < timeline.at) running.gap = true
    } else if (!isOn && is === true && timeline.was !== true) this.#begin(at, isUncertain)
    if (this.running?.end !== undefined && timeline.split !== undefined && timeline.split.to === undefined)
      this.running.split = true
    timeline.was = is ?? timeline.was
  }

  /** It belongs to somebody else from now on. */
  #handOver(at: number): void {
    const { timeline, running } = this
    if (running === undefined || at <= running.start) return
    if (running.end !== undefined) {
      // Nothing joins it that belongs to somebody else.
      if (at < overAt(this.#definition, running)) running.split = true
      return
    }
    this.closed.push(Object.assign(running, { end: at, passedOn: true, closed: at }))
    this.running = { start: at, paused: 0, handed: true, gapAt: timeline.gapAt }
  }

  #setSplit(at: number, is: boolean): void {
    const { timeline } = this
    const isNow = timeline.split !== undefined && timeline.split.to === undefined
    if (is === isNow) return
    if (isNow) this.splits.pop()
    timeline.split = is ? { from: at } : { from: timeline.split?.from ?? at, to: at }
    this.splits.push(timeline.split)
  }

  #begin(at: number, isUncertain: boolean): void {
    const { timeline, running } = this
    const { gapAt, staleAt, listens, split, was } = timeline
    timeline.was = true
    delete timeline.isCut
    if (running?.end !== undefined && at < overAt(this.#definition, running)) {
      running.paused += at - running.end
      ;(running.pauses ??= []).push([running.end, at])
      delete running.end
      return
    }
    // What was sent before an end by silence begins nothing, and does not go on.
    if (running?.end !== undefined && at <= running.end) return
    if (running !== undefined) this.closed.push(Object.assign(running, { closed: at }))
    // What was said last before a silence is from before it.
    const before = running === undefined ? timeline.endedAt : Number(running.end) + (running.cut === true ? 1 : 0)
    this.running = { start: at, paused: 0, before, gapAt, staleAt }
    // Its first messages may be missing, or a part that it joins.
    const splitAt = split === undefined ? 0 : (split.to ?? at)
    const isPart = staleAt === gapAt && splitAt <= gapAt && at - this.#definition.joins <= listens
    if (isUncertain || was === null || at <= listens || isPart) this.running.gap = true
  }

  /** Values up to now are uncertain. The receiver listens again since this time. */
  #gap(listens: number): void {
    const { timeline, running } = this
    timeline.gapAt = timeline.at
    // In less time a vehicle does not go far.
    if (listens - timeline.at > freshMs) timeline.staleAt = timeline.at
    timeline.was = null
    timeline.listens = Math.max(timeline.listens, listens)
    if (running === undefined) return
    if (timeline.at < overAt(this.#definition, running)) running.gap = true
    else running.gapAfter = timeline.at
  }
}
