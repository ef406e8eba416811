import { backgroundTimer, type Clock, type Timer } from '../../../src/base/clock.ts'
import type { Log } from '../../../src/base/log.ts'
import type { InboxGap, KeptGap } from '../../../src/inbox/inbox.ts'
import { codesOf, type Connector } from './client.ts'
import type { KafkaSettings } from './options.ts'
import { earliest, latest, TopicReader } from './topic-reader.ts'
import type { Writer } from './writer.ts'

interface LifeOptions {
  readonly connector: Connector
  readonly settings: KafkaSettings
  readonly clock: Clock
  readonly log: Log
  readonly writer: Writer
  readonly writerId: Buffer
  /** The gaps that no event has reported yet. If this receiver ends, another one reports them. */
  readonly openGaps: () => readonly KeptGap[]
  /** Called when messages may be missing because no receiver listened. */
  readonly onGap: (gap: InboxGap) => void
}

/** One sign of life. */
interface Sign {
  readonly state: 'alive' | 'closed'
  readonly gaps: readonly KeptGap[]
}

/** What this receiver knows about another one from its signs. Times are in milliseconds since the epoch. */
interface Trace {
  /** Its last sign before this receiver's first one. */
  before: number | undefined
  /** Its first sign after that. */
  after: number | undefined
  last: number
  state: Sign['state']
  gaps: readonly KeptGap[]
}

/** The time between two signs, in milliseconds. */
const signMs = 5_000
/** How long the last sign may take, in milliseconds. */
const lastSignMs = 1_000
/** A receiver that leaves no sign for this long counts as not listening, in milliseconds. */
const silentMs = 3 * signMs

/** The most gaps in one sign. */
const mostGaps = 1_000

/**
 * Signs of life of receivers, in a compacted topic. A receiver that starts reports the time in which none listened, and the gaps of
 * receivers that ended before they could report them. While at least one receiver listens, there is no gap.
 */
export class Life {
  readonly #options: LifeOptions
  readonly #own: string
  readonly #traces = new Map<string, Trace>()
  #read = 0
  #startedAt: number | undefined
  #timer: Timer | undefined
  #isStarted = false
  #isClosed = false

  constructor(options: LifeOptions) {
    this.#options = options
    this.#own = options.writerId.toString()
  }

  /** Leaves the first sign and reads those of others. `isExpected`: the socket stayed open, so connections waited for this process. */
  start(isExpected: boolean): void {
    this.#isStarted = true
    void this.#begin(isExpected)
  }

  /** Leaves the last sign: this receiver stopped on purpose. One that only replayed messages never listened, and leaves none. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#timer?.cancel()
    if (this.#isStarted) await this.#sign('closed').catch(() => {})
  }

  async #begin(isExpected: boolean): Promise<void> {
    const { settings, connector, log } = this.#options
    const reader = new TopicReader(connector, settings.lifeTopic)
    try {
      while (!this.#isClosed && !(await this.#signed())) await this.#pause(signMs)
      this.#repeat()
      await this.#look(reader)
      const candidates = [...this.#traces.values()].filter((trace) => this.#mayLive(trace))
      if (candidates.length > 0) {
        // Wait, to find out whether one of them listened at that moment or had just ended.
        await this.#pause(silentMs)
        if (this.#isClosed) return
        await this.#look(reader)
      }
      this.#report(isExpected)
      await this.#forgetDead()
    } catch (error) {
      log.warn('the signs of life of other receivers could not be read', { error: [...codesOf(error)].join(' ') })
    } finally {
      await reader.close()
    }
  }

  /** Whether the other receiver left a sign shortly before this one's first sign. */
  #mayLive({ before, state }: Trace): boolean {
    return state === 'alive' && before !== undefined && (this.#startedAt ?? 0) - before <= silentMs
  }

  /** Whether the other receiver listened when this one started. */
  #listened(trace: Trace): boolean {
    const { before, after } = trace
    return before !== undefined && after !== undefined && after - before <= silentMs
  }

  #report(isExpected: boolean): void {
    const { onGap } = this.#options
    const startedAt = this.#startedAt ?? 0
    const traces = [...this.#traces.values()]
    for (const trace of traces) if (this.#isDead(trace)) for (const gap of trace.gaps) onGap(gap)
    const lasting = traces.filter(({ before }) => before !== undefined)
    if (lasting.length === 0 || traces.some((trace) => this.#listened(trace))) return
    const newest = lasting.reduce((found, trace) => ((trace.before ?? 0) > (found.before ?? 0) ? trace : found))
    const isClean = newest.state === 'closed'
    if (isClean && isExpected) return
    onGap({ reason: isClean ? 'stopped' : 'restarted', fromMs: newest.before ?? startedAt, toMs: startedAt })
  }

  #isDead({ after, state }: Trace): boolean {
    return state === 'closed' || after === undefined
  }

  /** Deletes the signs of receivers that ended, so that no receiver reports their gaps again. */
  async #forgetDead(): Promise<void> {
    const { writer, settings } = this.#options
    for (const [name, trace] of this.#traces) {
      if (name === this.#own || !this.#isDead(trace)) continue
      const key = Buffer.from(name)
      await writer.append(
        [{ topic: settings.lifeTopic, partition: 0, key, headers: new Map(), timestamp: BigInt(Date.now()) }],
        100,
      )
    }
  }

  /** Reads the signs that are newer than the last read. */
  async #look(reader: TopicReader): Promise<void> {
    await reader.leaders(true)
    const [first, end] = await Promise.all([reader.offsets([0], earliest), reader.offsets([0], latest)])
    const from = Math.max(this.#read, first.get(0) ?? 0)
    for await (const page of reader.scan(new Map([[0, from]]), end))
      for (const { record, timestampMs } of page) this.#note(record.key?.toString() ?? '', record.value, timestampMs)
    this.#read = end.get(0) ?? this.#read
  }

  #note(name: string, value: Buffer | null, atMs: number): void {
    if (name === this.#own) {
      this.#startedAt ??= atMs
      return
    }
    const sign = value === null ? undefined : readSign(value)
    if (sign === undefined) {
      this.#traces.delete(name)
      return
    }
    const trace = this.#traces.get(name) ?? {
      before: undefined,
      after: undefined,
      last: atMs,
      state: sign.state,
      gaps: [],
    }
    this.#traces.set(name, trace)
    trace.last = atMs
    trace.state = sign.state
    trace.gaps = sign.gaps
    if (this.#startedAt === undefined) trace.before = atMs
    else trace.after ??= atMs
  }

  async #signed(): Promise<boolean> {
    try {
      await this.#sign('alive')
      return true
    } catch {
      return false
    }
  }

  #repeat(): void {
    if (this.#isClosed) return
    this.#timer = backgroundTimer(this.#options.clock, signMs, () => {
      void this.#signed().then(() => this.#repeat())
    })
  }

  async #sign(state: Sign['state']): Promise<void> {
    const { writer, settings, writerId, openGaps } = this.#options
    const sign: Sign = { state, gaps: openGaps().slice(0, mostGaps) }
    const value = Buffer.from(JSON.stringify(sign))
    const record = {
      topic: settings.lifeTopic,
      partition: 0,
      key: writerId,
      value,
      headers: new Map(),
      timestamp: BigInt(Date.now()),
    }
    await writer.append([record], value.length + 100, { withinMs: state === 'alive' ? signMs : lastSignMs })
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      backgroundTimer(this.#options.clock, ms, resolve)
    })
  }
}

function readSign(value: Buffer): Sign | undefined {
  try {
    const { state, gaps }: Partial<Sign> = JSON.parse(value.toString())
    return { state: state === 'closed' ? 'closed' : 'alive', gaps: Array.isArray(gaps) ? gaps : [] }
  } catch {
    return undefined
  }
}
