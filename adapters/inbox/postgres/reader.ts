import { type Clock, elapsedMs } from '../../../src/base/clock.ts'
import { throttled } from '../../../src/base/log.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import { PassingMap } from '../../../src/base/passing-map.ts'
import { resolvedOr } from '../../../src/core/draining.ts'
import { CrashSuspects } from '../../../src/inbox/crash-suspects.ts'
import type {
  Claim,
  DeadLetterReason,
  InboxMessage,
  InboxSettings,
  NextAttempt,
  Opened,
  Waiting,
} from '../../../src/inbox/inbox.ts'
import { messageOf } from '../../../src/inbox/stored-row.ts'
import type { InboxStats } from '../../../src/inbox/stats.ts'
import type { StoredVehicle } from '../../../src/inbox/vehicle-store.ts'
import type { SharedInbox } from '../two-halves.ts'
import { type Database, databaseError, type Row, stateOf } from './client.ts'
import { type Ending, Endings, type Place, type Tries } from './endings.ts'
import { tableHealth } from './health.ts'
import { Leases } from './leases.ts'
import type { PostgresSettings } from './options.ts'
import { Position } from './snapshots.ts'
import type { Store } from './store.ts'
import type { VehicleRows } from './vehicles.ts'

interface ReaderOptions {
  readonly db: Database
  readonly settings: PostgresSettings
  readonly inbox: InboxSettings
  readonly store: Store
  readonly vehicles: VehicleRows | undefined
  /** Names this process. */
  readonly me: string
  readonly put: (messages: readonly InboxMessage[]) => Promise<void>
}

/** A message that was read and is not settled. */
export interface Unsettled extends Ending {
  readonly message: InboxMessage
  readonly owned: Owned
  readonly replayed: boolean
  readonly changed: string | undefined
  /** An earlier owner of the partition may have had it in hand. */
  readonly isInherited: boolean
  tries: Tries
}

/** A partition of this process. */
interface Owned {
  /** By id, in the order of `seq`. */
  readonly unsettled: PassingMap<string, Unsettled>
  /** Those that were handed out and whose attempt has not ended. */
  readonly hand: Set<Unsettled>
  readonly suspects: CrashSuspects
  /** Messages that are read now may have been in the hand of the owner before. */
  isInherited: boolean
  /** Nothing more starts: another process gets it. */
  isLeaving: boolean
}

const defaultMessages = 10_000
const defaultBytes = 64 * 1_048_576
const busyMs = 25
/** The time after which reading begins again from the start, in case it missed something, in milliseconds. */
const againMs = 30_000
const errorMs = 250
/** How long the last statements may take at a stop, in milliseconds. */
const lastMs = 2_000
/** How long a list of vehicles waits for the newest states, in milliseconds. */
const flushMs = 10_000
const tidyMs = 60_000
const movedMs = 500

/** The messages of the partitions that this process has, as an inbox. */
export class Reader implements SharedInbox {
  readonly durability = 'database'
  readonly #options: ReaderOptions
  readonly #clock: Clock
  readonly #say: ReturnType<typeof throttled>
  readonly #leases: Leases
  readonly #endings: Endings
  readonly #owned = new Map<number, Owned>()
  readonly #byId = new PassingMap<string, Unsettled>()
  /** Settled messages whose rows may still be read. */
  readonly #over = new Set<string>()
  /** Their rows are deleted, but the read under way may still show them. */
  #deleted: Place[] = []
  #bytes = 0
  /** As of the last minute. */
  figures: InboxStats = {}
  #position = new Position()
  #begunAtMs = 0
  #isReading = false
  #foundAtMs = -Infinity
  #isFinishing = false
  #isStopped = false
  #isClosed = false
  #wake: (() => void) | undefined
  #isWoken = false
  /** End the pauses of loops. */
  readonly #sleepers = new Set<() => void>()
  #loops: Promise<void>[] = []
  readonly #changed = new Set<() => void>()

  constructor(options: ReaderOptions) {
    const { db, settings, inbox, me } = options
    this.#options = options
    this.#clock = inbox.clock
    this.#say = throttled(inbox.log, inbox.clock)
    this.#leases = new Leases({
      ...{ db, me, clock: inbox.clock, leaseMs: settings.leaseMs },
      lost: (parts) => this.#lose(parts),
      gained: (leases) => {
        for (const { part, isClean } of leases) {
          this.#owned.set(part, newOwned(!isClean))
          options.vehicles?.gained(part)
        }
        this.#beginAgain()
      },
      vacate: (count) => this.#vacate(count),
      keep: (parts) => {
        for (const part of parts) this.#keep(part)
      },
    })
    this.#endings = new Endings(db, inbox.clock, me, {
      failed: (error) => this.#failed('what became of messages could not be written yet', error),
      deleted: (endings) => {
        options.vehicles?.written(endings.flatMap(({ vehicle }) => vehicle ?? []))
        if (this.#isReading) for (const place of endings) this.#deleted.push(place)
        else for (const { seq } of endings) this.#over.delete(seq)
      },
    })
    if (options.vehicles !== undefined) {
      options.vehicles.flush = () => this.#flushed()
      options.vehicles.failed = (error) => this.#failed('a vehicle could not be forgotten yet', error)
    }
  }

  async open(): Promise<Opened> {
    const { db } = this.#options
    try {
      // Rows that were restored from another cluster have its ids of transactions, which snapshots of this one would not show.
      await db.run(`UPDATE ${db.schema}.waiting SET xid = pg_current_xact_id() WHERE xid >= pg_current_xact_id()`)
      await this.#leases.renew()
    } catch (error) {
      throw databaseError(error)
    }
    this.#loops = [
      this.#repeat(async () => {
        await this.#leases.renew()
        this.#change()
        return this.#leases.everyMs
      }, 'leases could not be renewed'),
      this.#repeat(() => this.#read(), 'messages could not be read'),
      this.#repeat(async () => {
        await this.#options.vehicles?.followMoves()
        return movedMs
      }, 'timers of vehicles could not be read'),
      this.#repeat(async () => {
        await this.#options.store.tidy()
        await this.#options.vehicles?.tidy(this.#clock.now())
        const { deadRows, oldestSnapshotMs } = await tableHealth(db)
        this.figures = { deadRows, oldestSnapshotMs }
        return tidyMs
      }, 'old messages could not be deleted'),
    ]
    return { waiting: none() }
  }

  /** New messages were committed by this process. */
  readonly lookNow = (): void => {
    this.#isWoken = true
    this.#wake?.()
  }

  /** Where a message that is handed out is in the table. */
  placeOf(id: string): Place | undefined {
    return this.#byId.get(id)
  }

  put(messages: readonly InboxMessage[]): Promise<void> {
    return this.#options.put(messages)
  }

  async claim(id: string): Promise<Claim | undefined> {
    const found = await this.#handOut(id)
    if (found === undefined) return undefined
    const { message, replayed, changed, owned, isInherited, tries } = found
    const known = { lane: message.lane, seq: isInherited ? 0 : 1, deliveries: tries.deliveries, replayed }
    const deliveries = owned.suspects.deliveriesOf(known)
    found.tries = { ...tries, deliveries: deliveries + 1 }
    if (owned.suspects.mustWrite(known)) {
      // A message that ends its process is counted before it does.
      await this.#endings.note(found, found.tries)
      if (this.#byId.get(id) !== found || this.#isStopped) return undefined
    }
    const seq = Number(found.seq)
    return { message, deliveries, replayed, seq, ...(changed === undefined ? {} : { changed }) }
  }

  async isStillHeld(id: string): Promise<boolean> {
    return (await this.#handOut(id)) !== undefined
  }

  settle(id: string, vehicle?: StoredVehicle): void {
    const found = this.#byId.get(id)
    if (found === undefined) return
    found.vehicle = vehicle
    if (vehicle !== undefined) this.#options.vehicles?.settled(vehicle)
    this.#forget(found)
    this.#over.add(found.seq)
    this.#endings.settle(found)
  }

  async reschedule(id: string, { attempts, notBefore, deliveries }: NextAttempt): Promise<void> {
    const found = this.#byId.get(id)
    if (found === undefined) return
    found.tries = { attempts, notBefore, deliveries: deliveries ?? found.tries.deliveries }
    void this.#endings.note(found, found.tries)
    this.#takeBack(found)
  }

  async deadLetter(id: string, reason: DeadLetterReason, vehicle?: StoredVehicle): Promise<number> {
    const found = this.#byId.get(id)
    if (found === undefined) return 0
    // An answer that was lost is no reason to keep it: the statement does nothing the second time.
    this.#over.add(found.seq)
    try {
      await this.#options.store.bury(found, this.#options.me, reason, vehicle)
    } catch (error) {
      this.#over.delete(found.seq)
      throw databaseError(error)
    }
    if (this.#byId.get(id) === found) {
      this.#forget(found)
      if (vehicle !== undefined) this.#options.vehicles?.keep(vehicle)
    }
    if (this.#isReading) this.#deleted.push(found)
    else this.#over.delete(found.seq)
    return 0
  }

  usage(): { readonly messages: number; readonly bytes: number } {
    return { messages: this.#byId.size, bytes: this.#bytes }
  }

  refusing(): 'inbox_unavailable' | undefined {
    return this.#leases.overdueMs > 2 * this.#options.settings.leaseMs ? 'inbox_unavailable' : undefined
  }

  /** The age of the oldest message that is read and not settled, in milliseconds. */
  oldestMs(): number | undefined {
    let oldest: number | undefined
    for (const { message, replayed } of this.#byId.values()) {
      if (!replayed) oldest = Math.min(oldest ?? Infinity, message.receivedAt)
    }
    return oldest === undefined ? undefined : Math.max(0, this.#clock.now() - oldest)
  }

  get parts(): number {
    return this.#owned.size
  }

  /** Whether nothing waits in this process, after a complete look at the partitions that it has. */
  get isIdle(): boolean {
    return this.#byId.size === 0 && this.#position.isComplete && !this.#position.isBehind && this.#over.size === 0
  }

  async finish(withinMs: number): Promise<void> {
    this.#isFinishing = true
    const quiet = (): boolean => [...this.#owned.values()].every(({ hand }) => hand.size === 0)
    const untilMs = elapsedMs(this.#clock) + withinMs
    while (!quiet() && elapsedMs(this.#clock) < untilMs) await this.#nextChange()
    await resolvedOr(this.#endings.flush(), this.#clock, lastMs)
  }

  stop(): void {
    this.#isStopped = true
    this.#change()
  }

  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    this.stop()
    for (const wake of this.#sleepers) wake()
    this.#wake?.()
    await resolvedOr(this.#endings.flush(), this.#clock, lastMs)
    this.#endings.close()
    await resolvedOr(Promise.all(this.#loops), this.#clock, lastMs)
    await this.#leases.release().catch((error: unknown) => this.#failed('leases could not be given back', error))
    this.#say.stop()
  }

  /** Runs it again after as long as it says, until the inbox is closed. */
  async #repeat(run: () => Promise<number>, what: string): Promise<void> {
    while (!this.#isClosed) {
      let ms = errorMs
      try {
        ms = await run()
      } catch (error) {
        if (!this.#isClosed) this.#failed(what, error)
      }
      if (!this.#isClosed) await this.#sleep(ms)
    }
  }

  /** Rejects when Postgres does not take it in time: who asks for a list must not wait for as long as it is down. */
  async #flushed(): Promise<void> {
    let isWritten = false
    const written = this.#endings.flush().then(() => {
      isWritten = true
    })
    await resolvedOr(written, this.#clock, flushMs)
    if (!isWritten)
      throw new FleethookError(
        'inbox_unavailable',
        `Postgres did not take the states of vehicles within ${flushMs} ms.`,
      )
  }

  async #sleep(ms: number): Promise<void> {
    await new Promise<void>((resolve) => {
      const done = (): void => {
        timer.cancel()
        this.#sleepers.delete(done)
        resolve()
      }
      const timer = this.#clock.after(ms, done)
      this.#sleepers.add(done)
    })
  }

  #failed(what: string, error: unknown): void {
    const { code, message } = databaseError(error)
    this.#say.warn(what, { code, state: stateOf(error), reason: message })
  }

  /** Resolves when a message may start. `undefined`: its partition has left this process, or it is settled. */
  async #handOut(id: string): Promise<Unsettled | undefined> {
    const found = this.#byId.get(id)
    const isHere = (): boolean => this.#byId.get(id) === found && !this.#isStopped
    while (found !== undefined && isHere()) {
      const { hand, isLeaving } = found.owned
      if (this.#leases.isFresh && ((!isLeaving && !this.#isFinishing) || hand.has(found))) {
        hand.add(found)
        return found
      }
      await this.#nextChange()
    }
    return undefined
  }

  #takeBack(found: Unsettled): void {
    if (found.owned.hand.delete(found) && (this.#isFinishing || found.owned.isLeaving)) this.#change()
  }

  #forget(found: Unsettled): void {
    const wasFull = this.#isFull
    this.#byId.delete(found.message.id)
    found.owned.unsettled.delete(found.message.id)
    this.#bytes -= found.message.bytes
    this.#takeBack(found)
    if (wasFull && !this.#isFull) this.lookNow()
  }

  get #isFull(): boolean {
    const { pendingMessages = defaultMessages, pendingBytes = defaultBytes } = this.#options.inbox
    return this.#byId.size + this.#over.size >= pendingMessages || this.#bytes >= pendingBytes
  }

  #change(): void {
    for (const go of this.#changed) go()
  }

  /** Resolves at the next change, or after a moment: no event reports the end of a lease. */
  async #nextChange(): Promise<void> {
    await new Promise<void>((resolve) => {
      const go = (): void => {
        timer.cancel()
        this.#changed.delete(go)
        resolve()
      }
      const timer = this.#clock.after(50, go)
      this.#changed.add(go)
    })
  }

  /** Other processes may have these partitions. */
  #lose(parts: readonly number[]): void {
    const gone: string[] = []
    // If they come back, what was not written is handled again.
    for (const { seq } of [...this.#endings.drop(parts), ...this.#deleted]) this.#over.delete(seq)
    this.#deleted = []
    for (const part of parts) {
      const owned = this.#owned.get(part)
      this.#owned.delete(part)
      this.#options.vehicles?.lost(part)
      for (const found of owned?.unsettled.values() ?? []) {
        this.#byId.delete(found.message.id)
        this.#bytes -= found.message.bytes
        gone.push(found.message.id)
      }
    }
    this.#beginAgain()
    this.#options.inbox.onGone?.(gone)
    this.#change()
  }

  #keep(part: number): void {
    const owned = this.#owned.get(part)
    if (owned !== undefined) owned.isLeaving = false
    this.#change()
  }

  /** Handlers that run go on. A partition in which one runs for long stays until a later renewal. */
  async #vacate(count: number): Promise<readonly number[]> {
    const chosen = [...this.#owned]
      .toSorted(([, one], [, other]) => one.hand.size - other.hand.size)
      .slice(0, count)
      .map(([part]) => part)
    for (const part of chosen) {
      const owned = this.#owned.get(part)
      if (owned !== undefined) owned.isLeaving = true
    }
    const isQuiet = (part: number): boolean => this.#owned.get(part)?.hand.size === 0
    const untilMs = elapsedMs(this.#clock) + this.#options.settings.leaseMs / 5
    while (!chosen.every(isQuiet) && elapsedMs(this.#clock) < untilMs) await this.#nextChange()
    await resolvedOr(this.#endings.flush(), this.#clock, lastMs)
    const quiet = chosen.filter(isQuiet)
    for (const part of chosen) if (!quiet.includes(part)) this.#keep(part)
    return quiet
  }

  /** A new object, so that a read under way notices it. */
  #beginAgain(): void {
    this.#position = new Position()
    this.#begunAtMs = elapsedMs(this.#clock)
    this.lookNow()
  }

  /** Looks for messages once. Resolves to the pause before the next look, in milliseconds. */
  async #read(): Promise<number> {
    await this.#untilRoom()
    if (elapsedMs(this.#clock) - this.#begunAtMs > againMs && !this.#position.isBehind) this.#beginAgain()
    const position = this.#position
    const { db, vehicles } = this.#options
    this.#isWoken = false
    this.#isReading = true
    let rows: readonly Row[] | undefined
    try {
      rows = await position.read(db, [...this.#owned.keys()], vehicles?.noticesAfter ?? null)
    } catch (error) {
      this.#beginAgain()
      throw error
    } finally {
      this.#isReading = false
    }
    vehicles?.noticed(position.notices)
    // Meanwhile partitions came or went.
    if (position !== this.#position) return 0
    if (rows === undefined) {
      this.#beginAgain()
      return 0
    }
    this.#add(rows)
    for (const { seq } of this.#deleted) this.#over.delete(seq)
    this.#deleted = []
    if (position.isComplete) for (const owned of this.#owned.values()) owned.isInherited = false
    if (position.isBehind) return 0
    const nowMs = elapsedMs(this.#clock)
    if (rows.length > 0) this.#foundAtMs = nowMs
    await this.#pause(
      nowMs - this.#foundAtMs < 1_000 ? Math.min(busyMs, this.#options.settings.idleMs) : this.#options.settings.idleMs,
    )
    return 0
  }

  /** Waits until the time is over, or messages came. */
  async #pause(ms: number): Promise<void> {
    if (this.#isWoken || this.#isClosed) return
    await new Promise<void>((resolve) => {
      const timer = this.#clock.after(ms, resolve)
      this.#wake = () => {
        timer.cancel()
        resolve()
      }
    })
    this.#wake = undefined
  }

  async #untilRoom(): Promise<void> {
    while (this.#isFull && !this.#isClosed) {
      this.#isWoken = false
      await this.#pause(busyMs)
    }
  }

  #add(rows: readonly Row[]): void {
    const page: Waiting[] = []
    for (const row of rows) {
      const owned = this.#owned.get(Number(row['part']))
      const message = messageOf(row)
      const seq = String(row['seq'])
      if (owned === undefined || this.#over.has(seq) || this.#byId.get(message.id) !== undefined) continue
      const replayed = row['replayed'] === 'true'
      const { isInherited } = owned
      const [attempts, deliveries] = [Number(row['attempts']), Number(row['deliveries'])]
      const found: Unsettled = {
        ...{ part: Number(row['part']), seq, message, owned, replayed, isInherited },
        changed: typeof row['changed'] === 'string' ? row['changed'] : undefined,
        tries: { attempts, deliveries, notBefore: Number(row['not_before']) },
      }
      owned.unsettled.set(message.id, found)
      this.#byId.set(message.id, found)
      this.#bytes += message.bytes
      const { id, lane, kind } = message
      const crashes = Math.max(0, deliveries - attempts)
      page.push({ id, lane, kind, attempts, notBefore: found.tries.notBefore, crashes, redelivered: isInherited })
    }
    if (page.length > 0) this.#options.inbox.onWaiting?.(page)
  }
}

function newOwned(isInherited: boolean): Owned {
  const suspects = new CrashSuspects()
  suspects.upTo = isInherited ? 0 : -1
  return { unsettled: new PassingMap(), hand: new Set(), suspects, isInherited, isLeaving: false }
}

async function* none(): AsyncGenerator<never> {}
