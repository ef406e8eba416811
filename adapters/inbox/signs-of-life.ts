import { type Clock, pause, resolvedOr } from '../../src/base/clock.ts'
import { type Log, throttled } from '../../src/base/log.ts'
import type { InboxGap, KeptGap } from '../../src/inbox/inbox.ts'

/* Receivers that share a system leave signs of life in it. A receiver that starts reports the time in which none listened. */

/** When a receiver listened, in milliseconds since the epoch, by the clock of the system. */
export interface Listened {
  readonly since: number
  readonly until: number
  readonly isClosed: boolean
  /** It has reported the time before its first sign, or another one listened. */
  readonly isAccounted: boolean
}

/** What a receiver left. */
export interface Trace extends Listened {
  readonly id: string
  /** The gaps that no event had reported at its last sign. */
  readonly gaps: readonly InboxGap[]
}

export interface Sign extends Pick<Listened, 'isClosed' | 'isAccounted'> {
  /** For how long the receiver has not listened, in milliseconds. */
  readonly agoMs: number
  /** For how long it has listened before that: it may have begun while the system was away. */
  readonly listeningMs: number
  readonly gaps: readonly KeptGap[]
}

/** Where receivers leave their signs. */
export interface Signs {
  /** Names this receiver. */
  readonly me: string
  write(sign: Sign, withinMs: number): Promise<void>
  /** Resolves to what all receivers left, also this one. */
  read(): Promise<readonly Trace[]>
  forget(ids: readonly string[]): Promise<void>
  /** For the log. */
  reasonOf(error: unknown): string
}

interface LifeOptions {
  readonly clock: Clock
  readonly log: Log
  readonly signs: Signs
  /** The gaps that no event has reported yet. If this receiver ends, another one reports them. */
  readonly openGaps: () => readonly KeptGap[]
  /** Called when messages may be missing because no receiver listened. */
  readonly onGap: (gap: InboxGap) => void
  /** Called after each sign: the system answers, so gaps can be reported. */
  readonly onSigned: () => void
  /** Called after it has tried to account for the time before it: what it knows of that, `onGap` has told. */
  readonly onAccounted: () => void
  /**
   * When no receiver with the file of this one listened. Left empty without a file: then signs alone tell. They tell less, because none can be
   * left while the system is away.
   */
  readonly earlier: readonly InboxGap[]
  /** For how long this receiver has listened, in milliseconds. */
  readonly listeningMs: () => number
  /** For how long this receiver has not listened because it stops, in milliseconds. */
  readonly notListeningMs: () => number
}

/** The time between two signs, and after how long without one a receiver counts as not listening, in milliseconds. */
const signMs = 5_000
const silentMs = 3 * signMs
/** How long the last sign may take, in milliseconds. */
const lastSignMs = 1_000

/**
 * Signs of life of a receiver. When it starts, it reports the time in which none listened, and the gaps of receivers that ended before they
 * could. While at least one receiver listens, there is no gap.
 */
export class Life {
  readonly #options: LifeOptions
  readonly #closing = new AbortController()
  #isStarted = false
  /** The time before this receiver is accounted for. */
  #isAccounted = false
  #loop: Promise<void> = Promise.resolve()

  constructor(options: LifeOptions) {
    this.#options = options
  }

  /** `isExpected`: the socket stayed open, so connections waited for this process. */
  start(isExpected: boolean): void {
    this.#isStarted = true
    this.#loop = this.#live(isExpected)
  }

  /** Leaves the last sign. */
  async close(): Promise<void> {
    if (!this.#isStarted) return
    this.#closing.abort()
    await resolvedOr(this.#loop, this.#options.clock, lastSignMs)
    await this.#sign(true).catch(() => {})
  }

  async #live(isExpected: boolean): Promise<void> {
    const { clock, log, signs, onSigned, onAccounted, listeningMs } = this.#options
    const { signal } = this.#closing
    const say = throttled(log, clock)
    let [isFirst, isOver] = [true, false]
    while (!signal.aborted) {
      try {
        await this.#sign(false)
        onSigned()
        // While the system was away, others could leave no signs either: each that lives leaves its next one in time.
        const isEarly = isFirst && listeningMs() > signMs
        isFirst = false
        if (!isEarly) {
          isOver ||= await this.#account(isExpected)
          onAccounted()
        }
      } catch (error) {
        // What to do: Until Postgres or the topic `<topic>-life` answers, the gap since the last start waits.
        say.warn('signs of life could not be written or read', { reason: signs.reasonOf(error) })
      }
      await pause(clock, signMs, signal).catch(() => {})
    }
    say.stop()
  }

  #sign(isClosed: boolean): Promise<void> {
    const { signs, openGaps, notListeningMs, listeningMs } = this.#options
    return signs.write(
      {
        isClosed,
        isAccounted: this.#isAccounted,
        agoMs: Math.ceil(notListeningMs()),
        listeningMs: Math.floor(listeningMs()),
        gaps: fittingGaps(openGaps()),
      },
      isClosed ? lastSignMs : signMs,
    )
  }

  /**
   * Accounts for the time before this receiver, and takes over from receivers that ended. Resolves to `false` while another one may have
   * ended: its next sign, or its silence, tells.
   */
  async #account(isExpected: boolean): Promise<boolean> {
    const { signs, onGap, earlier } = this.#options
    const { me } = signs
    const traces = await signs.read()
    const own = traces.find(({ id }) => id === me)
    if (own === undefined) return false
    const { since, until: now } = own
    const others = traces.filter((trace) => trace !== own)
    const older = others.filter((other) => other.since < since || (other.since === since && other.id < me))
    const mayLive = ({ isClosed, until }: Trace): boolean => !isClosed && now - until < silentMs
    const isSilent = (other: Trace): boolean => other.until < since && mayLive(other)
    // A receiver that listened, but ended before it accounted, left the time before it open.
    const hasCompany = older.some(({ until, isAccounted }) => isAccounted && until >= since)
    // An older receiver accounts first, so that two which start together do not each believe that the other listened before.
    if (older.some((other) => mayLive(other) && !isSilent(other) && !other.isAccounted)) return false
    if (!hasCompany && older.some(isSilent)) return false
    const ended = others.filter((other) => !mayLive(other))
    if (!this.#isAccounted && !hasCompany) {
      const ofFile = earlier.map((gap) => ({ ...gap, toMs: since }))
      const gaps = older.length === 0 ? ofFile : bothSilent(silences(older, since), ofFile)
      for (const gap of gaps) if (!(gap.reason === 'stopped' && gap.toMs === since && isExpected)) onGap(gap)
    }
    for (const { gaps } of ended) for (const gap of gaps) onGap(gap)
    this.#isAccounted = true
    // Only now that the next sign of this receiver has them.
    if (ended.length > 0) {
      await this.#sign(false)
      await signs.forget(ended.map(({ id }) => id))
    }
    return !older.some(isSilent)
  }
}

type EndedGap = InboxGap & { readonly toMs: number }

/** The times in which neither a receiver left signs, nor one with this file listened. Without a file, signs alone tell. */
function bothSilent(silent: readonly EndedGap[], ofFile: readonly EndedGap[]): readonly EndedGap[] {
  if (ofFile.length === 0) return silent
  return silent.flatMap((gap) =>
    ofFile
      .map(({ fromMs, toMs }) => ({ ...gap, fromMs: Math.max(gap.fromMs, fromMs), toMs: Math.min(gap.toMs, toMs) }))
      .filter(({ fromMs, toMs }) => fromMs < toMs),
  )
}

/** The times until `nowMs` in which none of these receivers listened, and that none of them has accounted for. */
function silences(receivers: readonly Listened[], nowMs: number): readonly EndedGap[] {
  // A receiver that stopped while its first sign was on its way never listened after it.
  const inOrder = receivers
    .map((receiver) => ({ ...receiver, since: Math.min(receiver.since, receiver.until) }))
    .toSorted((one, other) => one.since - other.since)
  // A crash can leave some after it that did not account.
  const first = inOrder.findLast(({ isAccounted }) => isAccounted) ?? inOrder[0]
  const gaps: EndedGap[] = []
  let heard: Pick<Listened, 'until' | 'isClosed'> = { until: first?.since ?? nowMs, isClosed: false }
  const silentUntil = (toMs: number): void => {
    if (heard.until < toMs) gaps.push({ reason: heard.isClosed ? 'stopped' : 'restarted', fromMs: heard.until, toMs })
  }
  for (const receiver of inOrder) {
    silentUntil(receiver.since)
    if (receiver.until >= heard.until) heard = receiver
  }
  silentUntil(nowMs)
  return gaps
}

/** The most gaps in one sign of life that say which vehicle they concern. */
const mostGaps = 1_000

/** The gaps that fit in one sign of life. Gaps beyond the limit no longer say which vehicle they concern. */
function fittingGaps(gaps: readonly KeptGap[]): readonly KeptGap[] {
  const others = new Map<string, KeptGap>()
  for (const { reason, fromMs, toMs, missed } of gaps.slice(mostGaps)) {
    const known = others.get(reason) ?? { fromMs, toMs, missed: 0 }
    others.set(reason, {
      reason,
      fromMs: Math.min(fromMs, known.fromMs),
      toMs: Math.max(toMs, known.toMs),
      missed: missed + known.missed,
    })
  }
  return [...gaps.slice(0, mostGaps), ...others.values()]
}
