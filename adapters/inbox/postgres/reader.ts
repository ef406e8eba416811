import { elapsedMs, resolvedOr } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import type { GapReason } from '../../../src/events/event.ts'
import { PassingMap } from '../../../src/base/passing-map.ts'
import { CrashSuspects } from '../crash-suspects.ts'
import type {
  Claim,
  DeadLetterReason,
  InboxMessage,
  InboxHost,
  Outcome,
  Settled,
  Waiting,
} from '../../../src/inbox/inbox.ts'
import { messageOf, unwritable } from '../stored-row.ts'
import type { InboxStats } from '../../../src/observe/stats.ts'
import type { StoredVehicle } from '../../../src/inbox/vehicle-store.ts'
import { type PartitionOf, SharedReader } from '../shared-reader.ts'
import { failureOf } from './backlog.ts'
import { type Database, databaseError, despiteCuts, isAboutRows, type Row, rowError, stateOf } from './client.ts'
import { type Ending, Endings, type Place, type Tries } from './endings.ts'
import { tableHealth } from './health.ts'
import type { Lease } from './leases.ts'
import type { PostgresSettings } from './options.ts'
import { lastMs, type Partitions, type Tenant } from './partitions.ts'
import type { Room } from './room.ts'
import { Position, readNotices } from './snapshots.ts'
import type { Store } from './store.ts'
import { receiver, type Tables } from './tables.ts'
import { Texts } from './texts.ts'
import type { VehicleRows } from './vehicles.ts'

interface ReaderOptions {
  readonly db: Database
  readonly settings: PostgresSettings
  readonly inbox: InboxHost
  readonly store: Store
  readonly vehicles: VehicleRows
  /** The places that are read. */
  readonly tables: Tables
  readonly partitions: Partitions
  /** For a branch. */
  readonly room?: Room | undefined
  /** What else is tidied. */
  readonly beside?: (() => Promise<void>) | undefined
}

/** A message that was read and is not settled. */
interface Unsettled {
  readonly message: Omit<InboxMessage, 'text'>
  /** `undefined`: only Postgres has it. */
  text: string | undefined
  readonly part: Partition
  readonly replayed: boolean
  readonly replay: string | undefined
  readonly changed: string | undefined
  /** An earlier owner of the partition may have had it in hand. */
  readonly isInherited: boolean
  readonly ending: Ending
  tries: Tries
}

/** A partition of this process. */
interface Partition extends PartitionOf<Unsettled> {
  readonly suspects: CrashSuspects
  /** Messages that are read now may have been in the hand of the owner before. */
  isInherited: boolean
  /** Nothing more starts: another process gets it. */
  isLeaving: boolean
}

const busyMs = 25
/** Of no row. */
const noPlace: Place = { part: -1, seq: '0' }
/** The time after which reading begins again from the start, in case it missed something, in milliseconds. */
const againMs = 30_000
/** How long a list of vehicles waits for the newest states, in milliseconds. */
const flushMs = 10_000
const tidyMs = 60_000
const movedMs = 500
/** How soon a process looks again that may become the one which does what one process is enough for, in milliseconds. */
const besideMs = 5_000
/** How long the deletion of dead letters waits for its gap, in milliseconds. */
const reportedMs = 10_000

/** The messages of one reader in the partitions that this process has. */
export class Reader extends SharedReader<Unsettled> implements Tenant {
  readonly #options: ReaderOptions
  readonly #endings: Endings
  /** Settled messages whose rows may still be read. */
  readonly #over = new Set<string>()
  readonly #texts = new Texts<Unsettled>()
  /** Their rows are deleted, but the read under way may still show them. */
  #deleted: Place[] = []
  /** Handled messages that this process deleted. */
  purged = 0
  /** As of the last minute. */
  figures: InboxStats = {}
  #position = new Position()
  #begunAtMs = 0
  #isReading = false
  #foundAtMs = -Infinity
  #isWoken = false
  #loops: Promise<void>[] = []

  constructor(options: ReaderOptions) {
    super(options)
    const { db, tables, inbox, vehicles, partitions } = options
    this.#options = options
    this.#endings = new Endings(db, tables, () => partitions.me, {
      failed: (error) => this.failed('what became of messages could not be written yet', error),
      deleted: (endings) => {
        vehicles.written(endings.flatMap(({ vehicle }) => vehicle ?? []))
        this.#areDeleted(endings)
      },
      refused: ({ seq }, error) => {
        for (const { ending, message } of this.byId.values())
          if (ending.seq === seq) inbox.on({ type: 'refused', id: message.id, reason: error.message })
      },
      erased: (seqs) => {
        // A message that becomes a dead letter now is in `#over`.
        const erased = [...this.byId.values()].filter(
          ({ ending: { seq } }) => seqs.includes(seq) && !this.#over.has(seq),
        )
        for (const found of erased) this.forget(found)
        inbox.on({ type: 'gone', ids: erased.map(({ message }) => message.id) })
        this.change()
      },
      locked: (messages, forMs) =>
        // What to do: Other vehicles go on. [End the transaction](operating.md#postgres).
        this.say.warn('another session has locked rows of messages that have ended: their vehicles wait', {
          messages,
          forMs,
        }),
    })
    vehicles.flush = () => this.#flushed()
    vehicles.failed = (error) => this.failed('a vehicle could not be forgotten yet', error)
  }

  async open(): Promise<void> {
    const { db, store, tables, vehicles, partitions } = this.#options
    await despiteCuts(async () => {
      // Rows that were restored from another cluster have its ids of transactions, which snapshots of this one would not show.
      await db.run(`UPDATE ${tables.waiting} SET xid = pg_current_xact_id() WHERE xid >= pg_current_xact_id()`)
      await store.follow()
    })
    // A drain can come while it opens. What joined now would never quit.
    if (this.isClosed) return
    await partitions.join(this)
    if (this.isClosed) return
    this.#loops = [
      this.repeat('messages could not be read', () => this.#read()),
      this.repeat('timers of vehicles could not be read', async () => {
        await vehicles.followMoves()
        return movedMs
      }),
      this.repeat('what was removed could not be found', async () => {
        await this.#options.beside?.()
        return this.#options.partitions.isFirst ? tidyMs : besideMs
      }),
      this.repeat('old messages could not be deleted', async () => {
        await this.#tidy()
        if (tables.number === receiver) {
          const { deadRows, oldestSnapshotMs } = await tableHealth(db)
          this.figures = { deadRows, oldestSnapshotMs }
        }
        return tidyMs
      }),
    ]
  }

  /** Deletes what is too old. What nobody handled is a gap, and that is stored first: a crash reports it twice rather than never. */
  async #tidy(): Promise<void> {
    const { store, inbox, partitions, tables } = this.#options
    // One process is enough.
    const old = partitions.isFirst ? await store.expired() : []
    if (old.length > 0) {
      const times = old.map(({ receivedAt }) => receivedAt)
      const [fromMs, toMs] = [Math.min(...times), Math.max(...times)]
      inbox.on({ type: 'gap', gap: { reason: 'inbox_expired', fromMs, toMs, missed: old.length } })
      if (await this.#areReported('inbox_expired')) {
        const deadLetters = await store.discard(old.map(({ id }) => id))
        inbox.on({ type: 'dropped', deadLetters })
        // What to do: Look at dead letters sooner. A `gap` (`inbox_expired`) says when they were received.
        if (deadLetters > 0) this.say.warn('dead letters were deleted: their retention is over', { deadLetters })
      }
    }
    if (tables.number === receiver) this.purged += await store.tidy()
    else await store.tidyNotices()
  }

  async #areReported(reason: GapReason): Promise<boolean> {
    const untilMs = elapsedMs(this.clock) + reportedMs
    const { openGaps } = this.#options.inbox.receiver ?? {}
    const isOpen = (): boolean => openGaps?.().some((gap) => gap.reason === reason) === true
    while (isOpen() && !this.isClosed && elapsedMs(this.clock) < untilMs) await this.nextChange()
    return !isOpen()
  }

  /** New messages were committed by this process. */
  readonly lookNow = (): void => {
    this.#isWoken = true
    this.change()
  }

  /** Where a message that is handed out is in the table. */
  placeOf(id: string): Place | undefined {
    return this.byId.get(id)?.ending
  }

  protected textHereOf(found: Unsettled): string {
    return found.text ?? ''
  }

  async claim(id: string): Promise<Claim | undefined> {
    const found = await this.handOut(id)
    if (found === undefined) return undefined
    const text = found.text ?? (await this.#textOf(found))
    if (text === undefined || !this.isHere(found)) return undefined
    const message = { ...found.message, text }
    const { replayed, replay, changed, part, isInherited, ending, tries } = found
    const known = { lane: message.lane, seq: isInherited ? 0 : 1, deliveries: tries.deliveries, replayed }
    const deliveries = part.suspects.deliveriesOf(known)
    found.tries = { ...tries, deliveries: deliveries + 1 }
    if (part.suspects.mustWrite(known)) {
      // A message that ends its process is counted before it does.
      await this.#endings.note(ending, found.tries)
      if (!this.isHere(found)) return undefined
    }
    return { message, deliveries, replayed, replay, changed, seq: Number(ending.seq) }
  }

  protected end(found: Unsettled, outcome: Outcome): Settled | Promise<Settled> {
    if (outcome.as === 'dead') return this.#die(found, outcome.reason, outcome.vehicle)
    const { ending } = found
    if (outcome.as === 'done') {
      const { vehicle } = outcome
      ending.vehicle = vehicle
      if (vehicle !== undefined) this.#options.vehicles.settled(vehicle)
      this.#options.room?.released(found.message.bytes)
      this.forget(found)
      this.#over.add(ending.seq)
      this.#endings.settle(ending)
    } else {
      const { attempts, notBefore, deliveries = found.tries.deliveries, failure } = outcome.next
      found.tries = { attempts, notBefore, deliveries, failure }
      void this.#endings.note(ending, found.tries)
      this.#texts.rest(found)
      this.takeBack(found)
    }
  }

  async #die(found: Unsettled, reason: DeadLetterReason, vehicle: StoredVehicle | undefined): Promise<Settled> {
    const { ending } = found
    // An answer that was lost is no reason to keep it: the statement does nothing the second time.
    this.#over.add(ending.seq)
    let isHandled = false
    try {
      isHandled = await this.#bury(ending, reason, vehicle)
    } catch (error) {
      this.#over.delete(ending.seq)
      throw error
    }
    if (this.byId.get(found.message.id) === found) {
      this.#options.room?.released(found.message.bytes)
      this.forget(found)
      if (vehicle !== undefined) this.#options.vehicles.keep(vehicle)
    }
    this.#areDeleted([ending])
    if (isHandled) return 'done'
  }

  /** Without what Postgres refuses, its state or the text of its error: it must not hold its vehicle forever. */
  async #bury(ending: Ending, reason: DeadLetterReason, vehicle: StoredVehicle | undefined): Promise<boolean> {
    const { store } = this.#options
    const { attempts, diedAt, marks } = reason
    const plain =
      marks === undefined ? { error: unwritable, attempts, diedAt } : { error: unwritable, attempts, diedAt, marks }
    // Twice as it is: what was no fault of it can be over since the first try.
    const ways = [
      [reason, vehicle],
      [reason, vehicle],
      [plain, vehicle],
      [reason, undefined],
      [plain, undefined],
    ] as const
    for (const [what, state] of ways) {
      try {
        return await store.bury(ending, this.#options.partitions.me, what, state)
      } catch (error) {
        if (what === plain && state === undefined) throw error
        const withoutRows = (): Promise<boolean> => store.bury(noPlace, this.#options.partitions.me, plain, undefined)
        if (!(await isAboutRows(error, withoutRows))) throw error
        this.failed('what became of a message could not be written yet', rowError(error))
      }
    }
    return false
  }

  refusing(): 'inbox_unavailable' | undefined {
    const { partitions, settings } = this.#options
    // A deploy waits until this process is ready before it stops the processes for which this one waits.
    if (!partitions.mayHandle) return undefined
    return partitions.overdueMs > 2 * settings.leaseMs ? 'inbox_unavailable' : undefined
  }

  /** Whether nothing waits in this process, after a complete look at the partitions that it has. */
  get isIdle(): boolean {
    return this.byId.size === 0 && this.#position.isComplete && !this.#position.isBehind && this.#over.size === 0
  }

  protected async settleDown(withinMs: number): Promise<void> {
    await this.quiet(this.parts.values(), withinMs)
    await this.#endings.flush(lastMs)
  }

  protected async leave(): Promise<void> {
    await this.#endings.flush(lastMs)
    this.#endings.close()
    await resolvedOr(Promise.all(this.#loops), this.clock, lastMs)
    await this.#options.partitions.quit(this)
  }

  // What to do about `what became of messages could not be written yet`, `old messages could not be deleted`, `what was removed could not be found`, `timers of vehicles could not be read`, `a vehicle could not be forgotten yet`, `messages could not be read`: The
  // inbox tries again. If the process ends before that, messages are handled again.
  protected failed(what: string, error: unknown): void {
    const { code, message } = databaseError(error)
    this.say.warn(what, { code, state: stateOf(error), reason: message })
  }

  protected mayStart(found: Unsettled): boolean {
    const { isLeaving, hand } = found.part
    const { partitions } = this.#options
    if (!partitions.mayHandle && !hand.has(found)) return false
    return partitions.isFresh && ((!isLeaving && !this.isFinishing) || hand.has(found))
  }

  protected override get isFull(): boolean {
    const messages = this.#options.inbox.receiver?.inLanes?.() ?? this.byId.size
    return messages + this.#over.size >= this.mostMessages || this.#texts.bytes >= this.mostBytes
  }

  protected override forget(found: Unsettled): void {
    this.#texts.forget(found)
    super.forget(found)
  }

  /** Reads the texts of a lane that goes on. `undefined`: the message was deleted, so nothing is left to handle. */
  async #textOf(found: Unsettled): Promise<string | undefined> {
    const missing = this.#texts.wake(found)
    const { db } = this.#options
    const rows = await db
      .run(`SELECT id, text FROM ${db.schema}.message WHERE id = ANY ($1::uuid[])`, [
        missing.map(({ message }) => message.id),
      ])
      .catch((error: unknown) => {
        this.takeBack(found)
        throw error
      })
    for (const { id, text } of rows) {
      const one = this.byId.get(String(id))
      if (one !== undefined) this.#texts.keep(one, String(text))
    }
    if (found.text === undefined && this.isHere(found)) this.forget(found)
    return found.text
  }

  /** Rejects when Postgres does not take it in time: who asks for a list must not wait for as long as it is down. */
  async #flushed(): Promise<void> {
    if (!(await this.#endings.flush(flushMs)))
      throw new FleethookError('inbox_unavailable', `Postgres did not take states of vehicles within ${flushMs} ms.`)
  }

  #areDeleted(places: readonly Place[]): void {
    if (this.#isReading) for (const place of places) this.#deleted.push(place)
    else for (const { seq } of places) this.#over.delete(seq)
  }

  #forgetDeleted(): void {
    for (const { seq } of this.#deleted) this.#over.delete(seq)
    this.#deleted = []
  }

  gain(gained: readonly Lease[]): void {
    // Messages that were to start while the lease was over wait for this.
    this.change()
    const parts = gained.filter(({ part }) => !this.parts.has(part))
    if (parts.length === 0) return
    for (const { part, isClean } of parts) this.parts.set(part, newPartition(!isClean))
    this.#options.vehicles.gained(parts.map(({ part }) => part))
    this.#beginAgain()
  }

  lose(parts: readonly number[]): void {
    // If they come back, what was not written is handled again.
    for (const { seq } of this.#endings.drop(parts)) this.#over.delete(seq)
    this.#forgetDeleted()
    this.#options.vehicles.lost(parts)
    const gone = this.drop(parts)
    this.#beginAgain()
    this.#options.inbox.on({ type: 'gone', ids: gone })
  }

  inHand(part: number): number {
    return this.parts.get(part)?.hand.size ?? 0
  }

  setLeaving(part: number, isLeaving: boolean): void {
    const found = this.parts.get(part)
    if (found !== undefined) found.isLeaving = isLeaving
  }

  quietIn(parts: readonly number[], withinMs: number): Promise<void> {
    return this.quiet(
      parts.flatMap((part) => this.parts.get(part) ?? []),
      withinMs,
    )
  }

  flush(withinMs: number): Promise<boolean> {
    return this.#endings.flush(withinMs)
  }

  isDoneWith(part: number): boolean {
    return this.inHand(part) === 0 && !this.#endings.has(part)
  }

  isClean(part: number): boolean {
    const found = this.parts.get(part)
    if (found === undefined || !this.isDoneWith(part) || found.isInherited) return false
    // A message that was handed out since is counted in its row.
    return [...found.unsettled.values()].every(
      ({ isInherited, replayed, tries }) => !isInherited || replayed || tries.deliveries > 0,
    )
  }

  /** A new object, so that a read under way notices it. `isAgain`: in case that something was missed. */
  #beginAgain(isAgain: boolean = false): void {
    this.#position = new Position(isAgain)
    this.#begunAtMs = elapsedMs(this.clock)
    this.lookNow()
  }

  /** Looks for messages once. Resolves to the pause before the next look, in milliseconds. */
  async #read(): Promise<number> {
    while (this.isFull && !this.isClosed) await this.#waitForRoom()
    if (elapsedMs(this.clock) - this.#begunAtMs > againMs && !this.#position.isBehind) this.#beginAgain(true)
    const position = this.#position
    const { db, tables, settings, vehicles } = this.#options
    this.#isWoken = false
    this.#isReading = true
    let rows: readonly Row[] | undefined
    try {
      rows = await position.read(db, [...this.parts.keys()], vehicles.noticesAfter, tables)
    } catch (error) {
      this.#beginAgain()
      throw error
    } finally {
      this.#isReading = false
    }
    vehicles.noticed(position.notices)
    // Partitions came or went during the read.
    if (position !== this.#position) return 0
    if (rows === undefined) {
      this.#beginAgain()
      return 0
    }
    this.#take(rows)
    this.#forgetDeleted()
    if (position.isComplete) for (const part of this.parts.values()) part.isInherited = false
    if (position.isBehind) return 0
    const nowMs = elapsedMs(this.clock)
    if (rows.length > 0) this.#foundAtMs = nowMs
    const isBusy = nowMs - this.#foundAtMs < 1_000
    if (!this.#isWoken && !this.isClosed)
      await this.nextChange(isBusy ? Math.min(busyMs, settings.idleMs) : settings.idleMs)
    return 0
  }

  /** Vehicles are erased also while no message is read. */
  async #waitForRoom(): Promise<void> {
    const { db, tables, settings, vehicles } = this.#options
    await this.nextChange(settings.idleMs)
    if (this.isFull && !this.isClosed) vehicles.noticed(await readNotices(db, tables, vehicles.noticesAfter))
  }

  #take(rows: readonly Row[]): void {
    const page: Waiting[] = []
    for (const row of rows) {
      const [partition, seq] = [Number(row['part']), String(row['seq'])]
      const part = this.parts.get(partition)
      const { text, ...message } = messageOf(row)
      if (part === undefined || this.#over.has(seq) || this.byId.get(message.id) !== undefined) continue
      const { isInherited } = part
      const [attempts, deliveries] = [Number(row['attempts']), Number(row['deliveries'])]
      const notBefore = Number(row['not_before'])
      const failure = failureOf(row)
      const found: Unsettled = {
        message,
        part,
        isInherited,
        ending: { part: partition, seq },
        tries: { attempts, deliveries, notBefore, failure },
        text: row['text'] === null ? undefined : text,
        replayed: row['replayed'] === 'true',
        replay: typeof row['replay'] === 'string' ? row['replay'] : undefined,
        changed: typeof row['changed'] === 'string' ? row['changed'] : undefined,
      }
      this.add(found)
      this.#texts.add(found, notBefore > this.clock.now())
      const { id, lane, kind } = message
      const crashes = Math.max(0, deliveries - attempts)
      page.push({ id, lane, kind, attempts, notBefore, crashes, redelivered: isInherited, failure })
    }
    if (page.length > 0) this.#options.inbox.on({ type: 'waiting', messages: page })
  }
}

function newPartition(isInherited: boolean): Partition {
  const suspects = new CrashSuspects()
  suspects.upTo = isInherited ? 0 : -1
  return { unsettled: new PassingMap(), hand: new Set(), suspects, isInherited, isLeaving: false }
}
