import { type Clock, elapsedMs, pause } from '../../../src/base/clock.ts'
import { type Log, throttled } from '../../../src/base/log.ts'
import type { InboxGap, KeptGap } from '../../../src/inbox/inbox.ts'
import { type Database, databaseError, type Row } from './client.ts'

interface LifeOptions {
  readonly db: Database
  readonly clock: Clock
  readonly log: Log
  /** Names this receiver. */
  readonly me: string
  /** The gaps that no event has reported yet. If this receiver ends, another one reports them. */
  readonly openGaps: () => readonly KeptGap[]
  /** Called when messages may be missing because no receiver listened. */
  readonly onGap: (gap: InboxGap) => void
  /** Called after each sign: the database answers, so gaps can be reported. */
  readonly onSigned: () => void
}

/** The time between two signs, and after how long without one a receiver counts as not listening, in milliseconds. */
const signMs = 5_000
const silentMs = 3 * signMs
const lastSignMs = 1_000
/** The most gaps that a sign has. */
const mostGaps = 1_000

/**
 * Signs of life of receivers, by the clock of the server. A receiver that starts reports the time in which none listened, and the gaps of
 * receivers that ended before they could. While at least one receiver listens, there is no gap.
 */
export class Life {
  readonly #options: LifeOptions
  readonly #closing = new AbortController()
  #isStarted = false
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
    let since: number | undefined
    let isAccounted = false
    let firstAtMs = 0
    while (!signal.aborted) {
      try {
        const signedAt = await this.#sign(0, false)
        if (since === undefined) firstAtMs = elapsedMs(clock)
        since ??= signedAt
        onSigned()
        isAccounted ||= await this.#account(since, elapsedMs(clock) - firstAtMs >= silentMs, isExpected)
      } catch (error) {
        say.warn('the sign of life could not be written', { reason: databaseError(error).message })
      }
      await pause(clock, signMs, signal).catch(() => {})
    }
    say.stop()
  }

  /** Resolves to the time of the sign, by the server, in milliseconds since the epoch. */
  async #sign(agoMs: number, closed: boolean): Promise<number> {
    const { db, me, openGaps } = this.#options
    const [row] = await db.run(
      `INSERT INTO ${db.schema}.receiver VALUES ($1, floor(extract(epoch FROM clock_timestamp()) * 1000) - $2::bigint, $3::boolean, $4)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, closed = excluded.closed, gaps = excluded.gaps RETURNING seen_at`,
      [me, Math.ceil(agoMs), closed, JSON.stringify(openGaps().slice(0, mostGaps))],
      closed ? lastSignMs : signMs,
    )
    return Number(row?.['seen_at'])
  }

  /**
   * Accounts for the time before this receiver. Resolves to `false` while another one may have listened or not: its next sign tells.
   */
  async #account(since: number, isLater: boolean, isExpected: boolean): Promise<boolean> {
    const { db, me, onGap } = this.#options
    const others = await db.run(
      `SELECT id, seen_at, closed::text AS closed, gaps FROM ${db.schema}.receiver WHERE id <> $1`,
      [me],
    )
    const isAlive = ({ seen_at: at, closed }: Row): boolean => closed !== 'true' && Number(at) > since
    const mayLive = ({ seen_at: at, closed }: Row): boolean => closed !== 'true' && Number(at) > since - silentMs
    const hasCompany = others.some(isAlive)
    if (!isLater && !hasCompany && others.some(mayLive)) return false
    const ended = others.filter((other) => !isAlive(other) && (isLater || !mayLive(other)))
    const last = ended.toSorted((one, other) => Number(other['seen_at']) - Number(one['seen_at']))[0]
    if (last !== undefined && !hasCompany) {
      const isClean = last['closed'] === 'true'
      const fromMs = Math.min(Number(last['seen_at']), since)
      if (!(isClean && isExpected)) onGap({ reason: isClean ? 'stopped' : 'restarted', fromMs, toMs: since })
    }
    for (const { gaps } of ended) for (const gap of gapsOf(gaps)) onGap(gap)
    // Only now that the next sign of this receiver has them.
    if (ended.length > 0) await this.#sign(0, false)
    if (ended.length > 0)
      await db.run(`DELETE FROM ${db.schema}.receiver WHERE id = ANY ($1::uuid[])`, [ended.map(({ id }) => id)])
    return isLater || !others.some((other) => mayLive(other) && !isAlive(other))
  }
}

function gapsOf(json: unknown): readonly InboxGap[] {
  const gaps: unknown = JSON.parse(String(json))
  return Array.isArray(gaps) ? gaps : []
}
