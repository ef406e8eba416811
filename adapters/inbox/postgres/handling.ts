import { type Clock, elapsedMs } from '../../../src/base/clock.ts'
import type { HandledSubjects } from '../../../src/inbox/inbox.ts'
import type { Database } from './client.ts'

/** How long handlers count whose last process was killed beside this one, in seconds: it may be on its way to a restart. */
const killedSeconds = 600
/** The time after which the log says again what is still so, in milliseconds. */
const sayAgainMs = 60_000

interface HandlingOptions {
  readonly db: Database
  readonly clock: Clock
  readonly leaseMs: number
  /** `Registry.declared`. */
  readonly declared: () => readonly string[]
}

/**
 * Which handlers the processes of this schema have, and whether this one may handle. One process handles a message. If it lacks a handler,
 * it would settle the message without that handler.
 *
 * | other processes have               | this process                                                       |
 * | ---------------------------------- | ------------------------------------------------------------------ |
 * | the same handlers, or fewer         | handles                                                            |
 * | the same ones, and more             | handles nothing while one of them lives: a newer version is deployed |
 * | other ones, which were there before | handles nothing while one of them lives, or was killed beside it     |
 * | other ones, which came later        | handles                                                            |
 */
export class Handling {
  readonly #options: HandlingOptions
  /** Others had handlers that this process lacks, until a moment ago: they may be restarted. */
  #heldUntilMs = -Infinity
  #checkedAtMs = -Infinity
  /** The last sign of life of the others, by their handlers. */
  readonly #signs = new Map<string, { readonly until: string; readonly isBeside: boolean }>()
  /** What this process lacks, and why it handles nothing. */
  lacks: readonly string[] = []
  /** What processes that handle nothing have, and this one lacks. */
  waiting: readonly string[] = []
  /** Whether that has to be said: it is new, or was said some time ago. */
  isNews = false
  #said = ''
  #saidAtMs = -Infinity

  constructor(options: HandlingOptions) {
    this.#options = options
  }

  get mayHandle(): boolean {
    return elapsedMs(this.#options.clock) >= this.#heldUntilMs
  }

  /** Says what this process has, and looks what others have. Does nothing when it has done so a moment ago. */
  async check(): Promise<void> {
    const { db, clock, leaseMs, declared } = this.#options
    const nowMs = elapsedMs(clock)
    this.isNews = false
    if (nowMs - this.#checkedAtMs < leaseMs / 2) return
    const mine = declared()
    const now = 'clock_timestamp()'
    const rows = await db.run(
      `WITH before AS (SELECT since FROM ${db.schema}.handling WHERE handlers = $1),
free AS (SELECT handlers FROM ${db.schema}.handling WHERE handlers = $1 AND (ended OR until < ${now} + $2 / 2 * interval '1 ms')
  FOR NO KEY UPDATE SKIP LOCKED),
again AS (UPDATE ${db.schema}.handling h SET until = ${now} + $2 * interval '1 ms', ended = false FROM free WHERE h.handlers = free.handlers),
new AS (INSERT INTO ${db.schema}.handling (handlers, since, until, ended) SELECT $1, ${now}, ${now} + $2 * interval '1 ms', false
  WHERE NOT EXISTS (SELECT FROM before) ON CONFLICT (handlers) DO NOTHING)
SELECT o.handlers, o.until::text AS until, (o.until > ${now})::text AS live,
  (NOT EXISTS (SELECT FROM before WHERE before.since < o.since))::text AS older
FROM ${db.schema}.handling o
WHERE o.handlers <> $1 AND (o.until > ${now} OR (NOT o.ended AND o.until > ${now} - ${killedSeconds} * interval '1 second'))`,
      [JSON.stringify(mine), 2 * leaseMs],
    )
    this.#checkedAtMs = nowMs
    const others = rows.flatMap(({ handlers, until, live, older }) => {
      const isBeside = this.#isBeside(String(handlers), String(until))
      const isLive = live === 'true'
      return isLive || isBeside ? [{ ...compared(mine, handlers), isLive, isOlder: older === 'true' }] : []
    })
    const stronger = others.filter(
      ({ lacking, extra, isLive, isOlder }) => lacking.length > 0 && ((isLive && extra.length === 0) || isOlder),
    )
    this.waiting = others.flatMap((other) => (other.isLive && !stronger.includes(other) ? other.lacking : []))
    if (stronger.length > 0) {
      this.lacks = [...new Set(stronger.flatMap(({ lacking }) => lacking))]
      this.#heldUntilMs = nowMs + 3 * leaseMs
    }
    const said = JSON.stringify([this.mayHandle, this.mayHandle ? this.waiting : this.lacks])
    this.isNews = said !== this.#said || nowMs - this.#saidAtMs >= sayAgainMs
    if (this.isNews) [this.#said, this.#saidAtMs] = [said, nowMs]
  }

  /** Whether a process with these handlers gave a sign of life since this one has begun. */
  #isBeside(handlers: string, until: string): boolean {
    const before = this.#signs.get(handlers)
    const isBeside = before !== undefined && (before.isBeside || before.until !== until)
    this.#signs.set(handlers, { until, isBeside })
    return isBeside
  }

  /** This process stops. Others that have the same handlers say within a moment that they still do. */
  async end(): Promise<void> {
    const { db, declared } = this.#options
    const { schema } = db
    await db.run(
      `WITH free AS (SELECT handlers FROM ${schema}.handling WHERE handlers = $1 OR until < clock_timestamp() - interval '1 day'
  FOR UPDATE SKIP LOCKED),
old AS (DELETE FROM ${schema}.handling h USING free WHERE h.handlers = free.handlers AND h.handlers <> $1)
UPDATE ${schema}.handling h SET until = clock_timestamp(), ended = true FROM free WHERE h.handlers = free.handlers AND h.handlers = $1`,
      [JSON.stringify(declared())],
      2_000,
    )
  }
}

/** What this process lacks of the handlers of another one, and what it has beyond them. */
function compared(
  mine: readonly string[],
  others: unknown,
): { readonly lacking: readonly string[]; readonly extra: readonly string[] } {
  const parsed: unknown = JSON.parse(String(others))
  const theirs = Array.isArray(parsed) ? parsed.map(String) : []
  return {
    lacking: theirs.filter((handler) => !coveredBy(mine, handler)),
    extra: mine.filter((handler) => !coveredBy(theirs, handler)),
  }
}

/**
 * What a process has handlers for, in a form that is the same in every process with the same handlers: subjects, with the fields of their
 * filters, and the names of handlers that leave marks. Two handlers for the same count as two: a process with one of them lacks the other.
 */
export function declaredBy(added: readonly HandledSubjects[]): readonly string[] {
  const declared = added.flatMap(({ keys, filter, mark }) => [
    ...[...keys].flatMap((key) => declarations(key, filter)),
    ...(mark === undefined ? [] : [`handler ${mark}`]),
  ])
  const times = new Map<string, number>()
  return declared
    .map((one) => {
      const nth = (times.get(one) ?? 0) + 1
      times.set(one, nth)
      return nth === 1 ? one : `${one} (handler ${nth})`
    })
    .toSorted()
}

function declarations(key: string, filter: HandledSubjects['filter']): readonly string[] {
  const of = filter?.vins === undefined ? '' : ' of some vehicles'
  const named = [
    ...(filter?.fields ?? []).map((field) => `${key}: ${field}`),
    ...(filter?.changed ?? []).map((field) => `${key}: ${field} changed`),
  ]
  return (named.length === 0 ? [key] : named).map((one) => one + of)
}

/** Whether processes with these handlers do what a declared one does. A handler without a filter gets what one with a filter gets. */
function coveredBy(declared: readonly string[], one: string): boolean {
  const wanted = one.replace(/ \(handler \d+\)$/, '')
  return declared.some(
    (other) => one === other || wanted.startsWith(`${other}: `) || wanted === `${other} of some vehicles`,
  )
}
