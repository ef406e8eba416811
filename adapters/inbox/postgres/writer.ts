import { type Clock, elapsedMs, pause } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import type { GapEvent } from '../../../src/events/event.ts'
import { isPause } from '../../../src/events/gap.ts'
import type { InboxMessage } from '../../../src/inbox/inbox.ts'
import { vinOf } from '../../../src/inbox/receipts.ts'
import { isUsed } from './branches.ts'
import { type Database, isAboutRows, isFinal, type Row, rowError } from './client.ts'
import { aboutServer, keepsSql, type Promised, type Promises, promisedBy, weakError } from './promises.ts'
import { partitionOf, storable } from './schema.ts'
import { receiver, Tables } from './tables.ts'
import { pauseKind } from './vehicles.ts'

/** The messages of one `put`: all are kept, or none. */
interface Put {
  readonly messages: readonly InboxMessage[]
  readonly bytes: number
  readonly deadlineMs: number
  readonly resolve: () => void
  readonly reject: (error: unknown) => void
  /** Its statement failed because of a value, which may be its own. */
  isAlone: boolean
}

/** A branch of this process. */
export interface Follower {
  readonly tables: Tables
  /** The places in the list of the messages for which it has no room. */
  full(messages: readonly InboxMessage[]): readonly number[]
  /** The messages are committed. Those in `full` have no place. */
  stored(messages: readonly InboxMessage[], full: readonly number[]): void
}

interface WriterOptions {
  readonly db: Database
  readonly clock: Clock
  readonly confirmMs: number
  readonly promises: Promises
  /** Who puts: the receiver, whose messages are for all branches too, or a branch. */
  readonly tables: Tables
  readonly followers: () => readonly Follower[]
  /** Called after each commit. */
  readonly committed: () => void
}

/** The most that one statement writes, unless a single body has more. */
const mostMessages = 500
const mostBytes = 1_048_576
/** The most bytes that wait for a commit. The process must not run out of memory while Postgres cannot be reached. */
const mostWaiting = 128 * 1_048_576
/** How long one try may take, and the pause after an error, in milliseconds. */
const tryMs = 4_000
const pauseMs = 100

/**
 * Inserts messages. One statement is in flight, and messages that come during that time share the next one, in order. A statement that failed may have
 * been committed, so the same messages are sent again: their ids make that harmless.
 */
export class Writer {
  readonly #db: Database
  readonly #clock: Clock
  readonly #confirmMs: number
  readonly #tables: Tables
  readonly #followers: () => readonly Follower[]
  /** The numbers of the branches that get places with each message, as the last answer has them. */
  #branches: readonly number[] = []
  readonly #committed: () => void
  readonly #promises: Promises
  /** A statement failed and may have been committed here, but not on the standby. */
  #mayBeBehind = false
  #waiting: Put[] = []
  #bytes = 0
  #writing: Promise<void> | undefined
  #isClosed = false

  constructor({ db, clock, confirmMs, promises, tables, followers, committed }: WriterOptions) {
    this.#promises = promises
    this.#tables = tables
    this.#followers = followers
    this.#db = db
    this.#clock = clock
    this.#confirmMs = confirmMs
    this.#committed = committed
  }

  /** There is a branch of this number from now on. */
  knows(number: number): void {
    if (!this.#branches.includes(number)) this.#branches = [...this.#branches, number]
  }

  /** Resolves when the messages are committed. Rejects with a FleethookError; Postgres may have them even then. */
  put(messages: readonly InboxMessage[]): Promise<void> {
    if (this.#isClosed) return Promise.reject(new FleethookError('inbox_unavailable', 'The inbox was closed.'))
    const bytes = messages.reduce((sum, message) => sum + message.bytes, 0)
    if (bytes > mostWaiting)
      return Promise.reject(
        new FleethookError('body_too_large', `The messages of a body take more than ${mostWaiting} bytes.`, {
          hint: 'Send smaller batches.',
        }),
      )
    if (this.#bytes + bytes > mostWaiting)
      return Promise.reject(
        new FleethookError('inbox_full', `Messages of ${mostWaiting} bytes wait for Postgres, and no more fit.`, {
          hint: 'Postgres does not answer or is too slow.',
        }),
      )
    this.#bytes += bytes
    const deadlineMs = elapsedMs(this.#clock) + this.#confirmMs
    const put = new Promise<void>((resolve, reject) => {
      this.#waiting.push({ messages, bytes, deadlineMs, resolve, reject, isAlone: false })
    })
    const over = (): void => {
      this.#bytes -= bytes
    }
    put.then(over, over)
    this.#writing ??= this.#writeAll()
    return put
  }

  /** Writes what waits, and takes no more. Does not wait for what was taken back. */
  async close(): Promise<void> {
    this.#isClosed = true
    if (this.#waiting.length > 0) await this.#writing
  }

  async #writeAll(): Promise<void> {
    // The requests of this task share the first statement.
    await Promise.resolve()
    while (this.#waiting.length > 0) await this.#write(this.#next())
    this.#writing = undefined
  }

  /** Sends nothing of what waits again, because somebody else keeps it. What is in flight may still be committed. */
  takeBack(): void {
    const taken = this.#waiting
    this.#waiting = []
    refuse(taken, new FleethookError('inbox_unavailable', 'A file on this machine keeps the message.'))
  }

  #next(): readonly Put[] {
    let messages = 0
    let bytes = 0
    let count = 0
    for (const put of this.#waiting) {
      messages += put.messages.length
      bytes += put.bytes
      if (count > 0 && (messages > mostMessages || bytes > mostBytes || put.isAlone)) break
      count += 1
      if (put.isAlone) break
    }
    return this.#waiting.slice(0, count)
  }

  async #write(puts: readonly Put[]): Promise<void> {
    const messages = puts.flatMap((put) => put.messages)
    const { unreplicated } = this.#db
    let promised: Promised
    const followers = this.#followers()
    const full = new Map(
      followers
        .filter(({ tables: { number = -1 } }) => this.#branches.includes(number))
        .map((each) => [each.tables.number, each.full(messages)]),
    )
    try {
      const leftMs = Math.max(...puts.map(({ deadlineMs }) => deadlineMs)) - elapsedMs(this.#clock)
      const mostMs = Math.min(tryMs, Math.max(1, leftMs))
      const skipped = this.#branches.map((number) => full.get(number)?.map((at) => at + 1) ?? [])
      const [row] = await this.#db.run(this.#sql, [...valuesOf(messages), ...skipped], mostMs)
      promised = promisedBy(row)
      const branches = numbersIn(row)
      // Nobody has a 2xx for these messages yet, so no message with a place there comes before them.
      for (const number of branches) if (!this.#branches.includes(number)) await this.#place(number, messages, mostMs)
      this.#branches = branches
      // What was there already writes nothing, so its commit waits for no standby. This writes something after it.
      if (this.#mayBeBehind) await this.#db.run(`SELECT pg_logical_emit_message(true, 'fleethook', '')`, [], mostMs)
      this.#mayBeBehind = false
    } catch (error) {
      await this.#failed(puts, error)
      return
    }
    this.#forget(puts)
    for (const each of followers) each.stored(messages, full.get(each.tables.number) ?? [])
    if (promised.weakness !== undefined && !this.#promises.allowsWeak)
      refuse(puts, weakError(promised.weakness, 'inbox_unavailable'))
    else if (this.#db.unreplicated === unreplicated) for (const { resolve } of puts) resolve()
    else refuse(puts, unreplicatedError())
    this.#committed()
  }

  /** Without a branch, it only asks whether there is one. */
  get #sql(): string {
    const { schema, waiting, notice, number: own } = this.#tables
    const isFront = own === receiver
    const followed = this.#branches.map((number, at) => followSql(new Tables(schema, number), number, 11 + at))
    return `WITH added AS (INSERT INTO ${schema}.message (id, lane, received_at, door, kind, bytes, text${isFront ? '' : ', branch'})
  SELECT *${isFront ? '' : `, ${own}`} FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::int[], $7::text[])${
    this.#promises.allowsWeak
      ? ''
      : `
  WHERE ${keepsSql}`
  }
  ON CONFLICT (id) DO NOTHING RETURNING id),
placed AS (INSERT INTO ${waiting} (part, id)
  SELECT n.part, n.id FROM unnest($8::smallint[], $1::uuid[]) WITH ORDINALITY n(part, id, place)
  JOIN added ON added.id = n.id ORDER BY n.place RETURNING seq, id),
noticed AS (${noticeSql(notice, 'placed', 9)})${followed.join('')}
SELECT ${aboutServer}${isFront ? `, (SELECT string_agg(b.number::text, ',') FROM ${schema}.branch b WHERE ${isUsed}) AS branches` : ''}`
  }

  get #noValues(): readonly unknown[] {
    return [...valuesOf([]), ...this.#branches.map(() => [])]
  }

  /** The statement that has just written these messages did not know of this branch, which was added since. */
  async #place(number: number, messages: readonly InboxMessage[], mostMs: number): Promise<void> {
    const { schema } = this.#tables
    const { waiting, notice } = new Tables(schema, number)
    await this.#db.run(
      `WITH placed AS (INSERT INTO ${waiting} (part, id)
  SELECT n.part, m.id FROM unnest($1::smallint[], $2::uuid[]) WITH ORDINALITY n(part, id, place)
  JOIN ${schema}.message m ON m.id = n.id JOIN ${schema}.branch b ON b.number = ${number} AND ${isUsed}
  WHERE m.kind <> 'timer' AND NOT EXISTS (SELECT FROM ${waiting} w WHERE w.id = m.id) ORDER BY n.place RETURNING seq, id)
${noticeSql(notice, 'placed', 3)}`,
      [
        messages.map(({ lane }) => partitionOf(storable(lane))),
        messages.map(({ id }) => id),
        ...noticeValues(messages),
      ],
      mostMs,
    )
  }

  /** They were the first that waited, unless they were taken back since. */
  #forget(puts: readonly Put[]): void {
    if (this.#waiting[0] === puts[0]) this.#waiting = this.#waiting.slice(puts.length)
  }

  async #failed(puts: readonly Put[], error: unknown): Promise<void> {
    if (await isAboutRows(error, () => this.#db.run(this.#sql, this.#noValues, tryMs))) {
      // Only the body with that value is refused, in a try of its own: what was no fault of it can be over since the last one.
      if (puts.length === 1 && puts[0]?.isAlone === true) {
        this.#forget(puts)
        refuse(puts, rowError(error))
      } else for (const put of puts) put.isAlone = true
      return
    }
    this.#mayBeBehind = this.#promises.now?.isReplicated === true
    // A try that is too short would hide the reason of the one before.
    const lastMs = elapsedMs(this.#clock) + 2 * pauseMs
    const isOver = (put: Put): boolean => isFinal(error) || put.deadlineMs <= lastMs
    const over = this.#waiting.filter(isOver)
    this.#waiting = this.#waiting.filter((put) => !isOver(put))
    refuse(over, error)
    if (this.#waiting.length > 0) await pause(this.#clock, pauseMs)
  }
}

function refuse(puts: readonly Put[], error: unknown): void {
  for (const { reject } of puts) reject(error)
}

const valuesOf = (messages: readonly InboxMessage[]): readonly unknown[] => [
  ...messageValues(messages),
  messages.map(({ lane }) => partitionOf(storable(lane))),
  ...noticeValues(messages),
]

/** The gaps of all vehicles concern all processes. */
export const gapsOfAll = (messages: readonly InboxMessage[]): readonly string[] => gapsIn(messages).map(({ id }) => id)

const gapsIn = (messages: readonly InboxMessage[]): readonly InboxMessage[] =>
  messages.filter(({ kind, lane }) => kind === 'gap' && vinOf(lane) === undefined)

/** The parameters of {@link noticeSql}. */
const noticeValues = (messages: readonly InboxMessage[]): readonly unknown[] => [
  gapsOfAll(messages),
  gapsIn(messages).map(kindOf),
]

function kindOf({ text }: InboxMessage): string | null {
  const { reason, missed, from }: Pick<GapEvent, 'reason' | 'missed'> & { readonly from: string } = JSON.parse(text)
  return isPause({ reason, missed }) ? pauseKind(Date.parse(from)) : null
}

/** `first`: the first parameter of {@link noticeValues}. */
const noticeSql = (notice: string, placed: string, first: number): string =>
  `INSERT INTO ${notice} (vin, seq, kind) SELECT '', p.seq, g.kind FROM ${placed} p
  JOIN unnest($${first}::uuid[], $${first + 1}::text[]) g(id, kind) ON g.id = p.id`

/** The places of a branch. `skipped`: the parameter with the messages for which it has no room. Timers are of the receiver's own rules. */
const followSql = ({ schema, waiting, notice }: Tables, number: number, skipped: number): string => `,
placed_${number} AS (INSERT INTO ${waiting} (part, id)
  SELECT n.part, n.id FROM unnest($8::smallint[], $1::uuid[], $5::text[]) WITH ORDINALITY n(part, id, kind, place)
  JOIN added ON added.id = n.id JOIN ${schema}.branch b ON b.number = ${number} AND ${isUsed}
  WHERE n.kind <> 'timer' AND n.place <> ALL ($${skipped}::int[]) ORDER BY n.place RETURNING seq, id),
noticed_${number} AS (${noticeSql(notice, `placed_${number}`, 9)})`

/** The branches that new messages are for. */
function numbersIn(row: Row | undefined): readonly number[] {
  const found = row?.['branches']
  return typeof found === 'string' ? found.split(',').map(Number) : []
}

/** The columns of `message`. */
export function messageValues(messages: readonly InboxMessage[]): readonly unknown[] {
  return [
    messages.map(({ id }) => id),
    messages.map(({ lane }) => storable(lane)),
    messages.map(({ receivedAt }) => receivedAt),
    messages.map(({ door }) => door),
    messages.map(({ kind }) => kind),
    messages.map(({ bytes }) => bytes),
    messages.map(({ text }) => storable(text)),
  ]
}

const unreplicatedError = (): FleethookError =>
  // What to do: Look at the standby. The message was refused.
  new FleethookError('inbox_unavailable', 'Postgres no longer waits for its synchronous standby.', {
    hint: 'The primary alone has the message, so it is refused. Look at the standby.',
  })
