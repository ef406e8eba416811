import { backgroundTimer, pause, type Timer } from '../../../src/base/clock.ts'
import { throttled } from '../../../src/base/log.ts'
import type { InboxGap, KeptGap } from '../../../src/inbox/inbox.ts'
import { fittingGaps, lastSignMs, type LifeOfReceiver, signMs, silences, silentMs } from '../signs-of-life.ts'
import { codesOf, type Connector } from './client.ts'
import type { KafkaSettings } from './options.ts'
import { earliest, latest, TopicReader } from './topic-reader.ts'
import type { Writer } from './writer.ts'

interface LifeOptions extends LifeOfReceiver {
  readonly connector: Connector
  readonly settings: KafkaSettings
  readonly writer: Writer
  readonly writerId: Buffer
  /** When this receiver, with its inbox before this one, did not listen. It counts only if no other receiver ever left a sign. */
  readonly earlier: readonly InboxGap[]
}

interface Sign {
  readonly state: 'alive' | 'closed'
  /** When it left its first sign, in milliseconds since the epoch. Left out: it has not read that yet. */
  readonly sinceMs?: number
  /** Of a closed receiver: when its sockets were closed, shortly before this sign. */
  readonly untilMs?: number
  /** Whether the time before its first sign is accounted for: others listened, or it has noted the gap. */
  readonly isAccounted: boolean
  readonly gaps: readonly KeptGap[]
}

/** What this receiver knows about another one from its signs. Times are in milliseconds since the epoch. */
interface Trace {
  /** Its first sign. */
  since: number
  /** Its last sign before this receiver's first one. */
  before: number | undefined
  /** Its first sign after that. */
  after: number | undefined
  sign: Sign
}

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
  #isAccounted = false
  #timer: Timer | undefined
  #isStarted = false
  readonly #closing = new AbortController()

  constructor(options: LifeOptions) {
    this.#options = options
    this.#own = options.writerId.toString()
  }

  /** Leaves the first sign and reads those of others. `isExpected`: the socket stayed open, so connections waited for this process. */
  start(isExpected: boolean): void {
    this.#isStarted = true
    void this.#begin(isExpected)
  }

  /** Leaves the last sign, unless it never listened. The gap begins when it stopped listening. */
  async close(listenedUntilMs: number): Promise<void> {
    this.#closing.abort()
    this.#timer?.cancel()
    if (this.#isStarted) await this.#sign('closed', { untilMs: listenedUntilMs }).catch(() => {})
  }

  async #begin(isExpected: boolean): Promise<void> {
    const { log, clock } = this.#options
    const say = throttled(log, clock)
    while (!this.#closing.signal.aborted && !(await this.#signed())) await this.#pause(signMs)
    this.#repeat()
    while (!this.#closing.signal.aborted) {
      try {
        await this.#account(isExpected)
        break
      } catch (error) {
        say.warn('the signs of life of other receivers could not be read', { error: [...codesOf(error)].join(' ') })
      }
      await this.#pause(signMs)
    }
    // This sign has the gaps of those that ended, so theirs can go. What is not deleted now, the next receiver deletes.
    if (this.#isAccounted && (await this.#signed())) await this.#forgetDead().catch(() => {})
  }

  /** Accounts for the time before the first sign of this receiver. */
  async #account(isExpected: boolean): Promise<void> {
    const { settings, connector } = this.#options
    const reader = new TopicReader(connector, settings.lifeTopic)
    try {
      this.#traces.clear()
      this.#read = 0
      this.#startedAt = undefined
      await this.#look(reader)
      if ([...this.#traces.values()].some((trace) => this.#mayLive(trace))) {
        // Wait, to find out whether one of them listened at that moment or had just ended.
        await this.#pause(silentMs)
        if (this.#closing.signal.aborted) return
        await this.#look(reader)
      }
      this.#report(isExpected)
      this.#isAccounted = true
    } finally {
      await reader.close()
    }
  }

  /** Whether the other receiver left a sign shortly before this one's first sign. */
  #mayLive({ before, sign }: Trace): boolean {
    return sign.state === 'alive' && before !== undefined && (this.#startedAt ?? 0) - before <= silentMs
  }

  /** Whether the other receiver listened when this one started. */
  #listened({ before, after }: Trace): boolean {
    return before !== undefined && after !== undefined && after - before <= silentMs
  }

  #report(isExpected: boolean): void {
    const { onGap, earlier } = this.#options
    const startedAt = this.#startedAt ?? 0
    for (const trace of this.#traces.values()) if (this.#isDead(trace)) for (const gap of trace.sign.gaps) onGap(gap)
    const traces = [...this.#traces.values()]
      .flatMap((trace) => (trace.before === undefined ? [] : [{ ...trace, before: trace.before }]))
      .sort((one, other) => one.since - other.since)
    if (traces.length === 0)
      for (const gap of earlier) if (!(isExpected && gap.reason === 'stopped')) onGap({ ...gap, toMs: startedAt })
    const listened = traces.map((trace) => ({
      since: trace.since,
      until: this.#listened(trace) ? startedAt : trace.before,
      isClosed: trace.sign.state === 'closed',
      isAccounted: trace.sign.isAccounted,
    }))
    for (const gap of silences(listened, startedAt))
      if (!(gap.reason === 'stopped' && gap.toMs === startedAt && isExpected)) onGap(gap)
  }

  #isDead({ after, sign }: Trace): boolean {
    return sign.state === 'closed' || after === undefined
  }

  /** Deletes the signs of receivers that ended, so that no receiver reports their gaps again. */
  async #forgetDead(): Promise<void> {
    const { writer, settings } = this.#options
    for (const [name, trace] of this.#traces) {
      if (!this.#isDead(trace)) continue
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
    const trace = this.#traces.get(name) ?? { since: atMs, before: undefined, after: undefined, sign }
    this.#traces.set(name, trace)
    trace.sign = sign
    // A topic that deletes older signs can have deleted the first one.
    trace.since = Math.min(trace.since, sign.sinceMs ?? atMs)
    const listenedMs = Math.min(atMs, sign.untilMs ?? atMs)
    if (this.#startedAt === undefined) trace.before = listenedMs
    else if (sign.untilMs !== undefined && listenedMs < this.#startedAt) {
      // It still left signs while it drained, but its sockets were closed before this receiver started.
      trace.before = listenedMs
      trace.after = undefined
    } else trace.after ??= listenedMs
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
    if (this.#closing.signal.aborted) return
    this.#timer = backgroundTimer(this.#options.clock, signMs, () => {
      void this.#signed().then((isKept) => {
        if (isKept) this.#options.onSigned()
        this.#repeat()
      })
    })
  }

  async #sign(state: Sign['state'], until: Pick<Sign, 'untilMs'> = {}): Promise<void> {
    const { writer, settings, writerId, openGaps } = this.#options
    const since = this.#startedAt === undefined ? {} : { sinceMs: this.#startedAt }
    const sign: Sign = { state, ...since, ...until, isAccounted: this.#isAccounted, gaps: fittingGaps(openGaps()) }
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

  /** Waits, but no longer than until this receiver closes. */
  #pause(ms: number): Promise<void> {
    return pause(this.#options.clock, ms, this.#closing.signal).catch(() => {})
  }
}

function readSign(value: Buffer): Sign | undefined {
  try {
    const { state, sinceMs, untilMs, isAccounted = true, gaps }: Partial<Sign> = JSON.parse(value.toString())
    return {
      state: state === 'closed' ? 'closed' : 'alive',
      ...(typeof sinceMs === 'number' ? { sinceMs } : {}),
      ...(typeof untilMs === 'number' ? { untilMs } : {}),
      isAccounted,
      gaps: Array.isArray(gaps) ? gaps : [],
    }
  } catch {
    return undefined
  }
}
