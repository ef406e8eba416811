import { pause } from '../../../src/base/clock.ts'
import { throttled } from '../../../src/base/log.ts'
import type { InboxGap } from '../../../src/inbox/inbox.ts'
import {
  fittingGaps,
  lastSignMs,
  type LifeOfReceiver,
  type Listened,
  signMs,
  silences,
  silentMs,
} from '../signs-of-life.ts'
import { type Database, databaseError, type Row } from './client.ts'

interface LifeOptions extends LifeOfReceiver {
  readonly db: Database
  /** Names this receiver. */
  readonly me: string
}

/**
 * Signs of life of receivers, by the clock of the server. A receiver that starts reports the time in which none listened, and the gaps of
 * receivers that ended before they could. While at least one receiver listens, there is no gap.
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

  /** Leaves the last sign. A gap begins when this receiver stopped listening. */
  async close(listenedUntilMs: number): Promise<void> {
    if (!this.#isStarted) return
    this.#closing.abort()
    await this.#loop
    const agoMs = Math.max(0, this.#options.clock.now() - listenedUntilMs)
    await this.#sign(agoMs, true).catch(() => {})
  }

  async #live(isExpected: boolean): Promise<void> {
    const { clock, log, onSigned } = this.#options
    const { signal } = this.#closing
    const say = throttled(log, clock)
    let isOver = false
    while (!signal.aborted) {
      try {
        const signed = await this.#sign(0, false)
        onSigned()
        isOver ||= await this.#account(signed, isExpected)
      } catch (error) {
        say.warn('the sign of life could not be written', { reason: databaseError(error).message })
      }
      await pause(clock, signMs, signal).catch(() => {})
    }
    say.stop()
  }

  /** Resolves to the time of the first sign, and to that of this one. */
  async #sign(agoMs: number, closed: boolean): Promise<Signed> {
    const { db, me, openGaps } = this.#options
    const [row] = await db.run(
      `INSERT INTO ${db.schema}.receiver VALUES ($1, floor(extract(epoch FROM clock_timestamp()) * 1000) - $2::bigint, $3::boolean, $4, $5::boolean)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, closed = excluded.closed, gaps = excluded.gaps, accounted = excluded.accounted
RETURNING since, seen_at`,
      [me, Math.ceil(agoMs), closed, JSON.stringify(fittingGaps(openGaps())), this.#isAccounted],
      closed ? lastSignMs : signMs,
    )
    return { since: Number(row?.['since']), now: Number(row?.['seen_at']) }
  }

  /**
   * Accounts for the time before this receiver, and takes over from those that ended. Resolves to `false` while another one may have
   * ended: its next sign, or its silence, tells.
   */
  async #account({ since, now }: Signed, isExpected: boolean): Promise<boolean> {
    const { db, me, onGap } = this.#options
    const rows = await db.run(
      `SELECT id, since, seen_at, closed::text AS closed, accounted::text AS accounted, gaps FROM ${db.schema}.receiver WHERE id <> $1`,
      [me],
    )
    const others = rows.map(traceOf)
    const older = others.filter((other) => other.since < since || (other.since === since && other.id < me))
    const mayLive = ({ isClosed, until }: Trace): boolean => !isClosed && now - until < silentMs
    const isSilent = (other: Trace): boolean => other.until < since && mayLive(other)
    // One that ended before it accounted left the time before it open, although it listened.
    const hasCompany = older.some(({ until, isAccounted }) => isAccounted && until >= since)
    // An older one accounts first, so that two that start together do not take each other for one that listened before.
    if (older.some((other) => mayLive(other) && !isSilent(other) && !other.isAccounted)) return false
    if (!hasCompany && older.some(isSilent)) return false
    const ended = others.filter((other) => !mayLive(other))
    if (!this.#isAccounted && !hasCompany)
      for (const gap of silences(older, since))
        if (!(gap.reason === 'stopped' && gap.toMs === since && isExpected)) onGap(gap)
    for (const { gaps } of ended) for (const gap of gaps) onGap(gap)
    this.#isAccounted = true
    // Only now that the next sign of this receiver has them.
    if (ended.length > 0) {
      await this.#sign(0, false)
      await db.run(`DELETE FROM ${db.schema}.receiver WHERE id = ANY ($1::uuid[])`, [ended.map(({ id }) => id)])
    }
    return !older.some(isSilent)
  }
}

/** The times in milliseconds since the epoch, by the server. */
interface Signed {
  /** Of the first sign of this receiver. */
  readonly since: number
  readonly now: number
}

/** What another receiver left. */
interface Trace extends Listened {
  readonly id: string
  readonly gaps: readonly InboxGap[]
}

function traceOf({ id, since, seen_at, closed, accounted, gaps }: Row): Trace {
  return {
    id: String(id),
    since: Number(since),
    until: Number(seen_at),
    isClosed: closed === 'true',
    isAccounted: accounted === 'true',
    gaps: JSON.parse(String(gaps)),
  }
}
