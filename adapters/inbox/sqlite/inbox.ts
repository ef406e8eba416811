import { statSync } from 'node:fs'
import { setImmediate } from 'node:timers/promises'
import { BelievedTime, clockAhead } from '../../../src/base/believed-time.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import type { OpenOptions } from '../../../src/hosting/drainable.ts'
import { msOfSeq, seqOf } from '../../../src/inbox/delivery-id.ts'
import {
  type Archive,
  type Claim,
  done,
  type Inbox,
  type InboxGap,
  type InboxMessage,
  type InboxSettings,
  type Opened,
  type Outcome,
  type Waiting,
} from '../../../src/inbox/inbox.ts'
import type { VehicleStore } from '../../../src/inbox/vehicle-store.ts'
import { Window } from '../../../src/inbox/window.ts'
import type { Forgotten } from '../../../src/observe/dead-letters.ts'
import type { InboxStats, UnopenedInbox } from '../../../src/observe/stats.ts'
import { FileArchive, pages } from './archive.ts'
import { Claims } from './claims.ts'
import { createControl } from './control.ts'
import type {
  Committed,
  Dropped,
  FileFigures,
  ForgottenPage,
  InboxFile,
  OpenedFile,
  OpenedVehicles,
  StoredMessage,
} from './file/interface.ts'
import { GroupCommit } from './group-commit.ts'
import { Health } from './health.ts'
import { Moves } from './moves.ts'
import type { SqliteSettings } from './options.ts'
import { Pending } from './pending.ts'
import { openWhenFree } from './recovery.ts'
import { lastSign, signOfLife } from './sign.ts'
import { StateRows } from './states.ts'

const tidyMs = 10_000
const checkMs = 1_000

/** What becomes of a message whose row SQLite refuses. */
const keptAnyway = {
  update: 'Its message becomes a dead letter, unless it is tried at this moment.',
  settle: 'Its message is handled, and the next process handles it again.',
  vehicle: 'The file keeps the older state of this vehicle.',
} as const

/** The parts of a SQLite inbox. Each knows only those before it. */
type Parts = ReturnType<typeof partsOf>
function partsOf(file: InboxFile, settings: InboxSettings, options: SqliteSettings) {
  const { path } = options
  const believed = new BelievedTime(settings.clock, (aheadMs) => settings.log.warn(clockAhead, { path, aheadMs }))
  const sign = (): ReturnType<typeof signOfLife> => signOfLife(settings, believed)
  const pending = new Pending(settings, options.maxBytes)
  const commits = new GroupCommit({ file, believed, pending, givesWay: settings.givesWay })
  const health = new Health({ file, settings, options, pending, sign })
  const states =
    settings.keepsVehicles === true
      ? new StateRows({ file, clock: settings.clock, commits, health, onFailure: settings.onFailure })
      : undefined
  const moves = new Moves({ commits, pending, onFailure: settings.onFailure })
  const claims = new Claims({ file, commits, health })
  const archive = new FileArchive({ file, commits, health, moves, pending })
  const control = createControl(path, settings)
  return {
    file,
    settings,
    options,
    believed,
    sign,
    pending,
    commits,
    health,
    states,
    moves,
    claims,
    archive,
    control,
  }
}

/** The receiver's half: what is pending, what is in memory, and what the file still has to write. */
export class SqliteInbox implements Inbox {
  readonly durability = 'disk'
  readonly keepsGaps = true
  readonly vehicles: VehicleStore | undefined
  readonly archive: Archive
  readonly #parts: Parts
  /** Dead letters that were deleted, because they had to make room or were too old, and that no line of the log has counted. */
  readonly #unlogged = { room: 0, expired: 0 }
  #purged = 0
  /** Files that hold messages, and that no receiver had open when this one started. */
  #unopened: readonly UnopenedInbox[] = []
  #figures: FileFigures = { oldest: undefined, deadLetters: 0 }
  #newestSeq = -1
  /** The file was damaged: messages up to this `seq` may be missing there, although they are in memory. */
  #damagedUpTo = -1
  readonly #stops: (() => void)[] = []

  constructor(file: InboxFile, settings: InboxSettings, options: SqliteSettings) {
    this.#parts = partsOf(file, settings, options)
    const { commits, health, states, moves, archive, control } = this.#parts
    this.vehicles = states
    this.archive = archive
    commits.states = states
    commits.on = {
      onCommitted: (committed) => this.#committed(committed),
      onFailed: (error, puts) => health.failed(error, puts),
      get isUsable() {
        return health.isUsable
      },
    }
    health.on = {
      onClosed: () => control.close(),
      onReopened: (found) => this.#reopened(found),
      onWritable() {
        commits.resume()
        moves.resume()
      },
    }
  }

  window(host: ConstructorParameters<typeof Window<Waiting>>[0]): Window<Waiting> {
    return new Window(host, (after) => this.#waitingAfter(after === undefined ? -1 : seqOf(after)))
  }

  async open(openOptions?: OpenOptions): Promise<Opened> {
    const { file, settings, options, believed, sign, pending, health, states, claims, control } = this.#parts
    const found = await openWhenFree(file, settings, options, health, () => file.open(sign(), openOptions))
    const { lastId, messages, bytes, unclean } = found
    this.#figures = found
    if (found.believed !== undefined) believed.follow(found.believed)
    this.#unopened = found.unopened
    if (found.vehicles !== undefined) states?.begin(found.vehicles)
    Object.assign(pending, { messages, bytes })
    if (lastId !== undefined) this.#newestSeq = seqOf(lastId)
    if (unclean) claims.suspect(this.#newestSeq)
    health.opened()
    this.#stops.push(health.regularly(tidyMs, () => this.#tidy()))
    this.#stops.push(health.regularly(checkMs, () => file.check().then(() => false)))
    control.open()
    void this.#finishErasures(found.erasing).catch(() => {})
    return {
      lastId,
      unapplied: states && this.#unapplied(found.vehicles),
      gaps: gapsOf(found, settings.clock.now()),
      owed: found.owed,
      waiting: this.#waitingAfter(-1),
    }
  }

  async put(messages: readonly InboxMessage[]): Promise<void> {
    const { health, pending, commits, claims } = this.#parts
    let bytes = 0
    for (const message of messages) bytes += message.bytes
    const { refusal } = health
    if (refusal !== undefined) throw refusal
    pending.reserve(messages.length, bytes)
    try {
      const first = seqOf(messages[0]?.id ?? '')
      const stored: StoredMessage[] = []
      for (const { id, lane, receivedAt, door, kind, text, bytes: size } of messages)
        stored.push({ seq: seqOf(id), first, id, lane, receivedAt, door, kind, text, bytes: size })
      this.#newestSeq = Math.max(this.#newestSeq, stored.at(-1)?.seq ?? this.#newestSeq)
      await commits.put(stored)
      for (const [at, message] of messages.entries()) claims.added(message, stored[at]?.seq ?? 0)
    } catch (error) {
      pending.release(messages.length, bytes)
      throw error
    }
  }

  claim(id: string): Claim | undefined | Promise<Claim | undefined> {
    return this.#parts.claims.claim(id)
  }

  settle(id: string, outcome: Outcome = done): void | Promise<void> {
    const { pending, commits, states, claims } = this.#parts
    const found = claims.get(id)
    const seq = found?.seq ?? seqOf(id)
    if (outcome.as === 'later') return claims.reschedule(seq, outcome.next, found)
    if (outcome.vehicle !== undefined) states?.settled(seq, outcome.vehicle)
    if (outcome.as === 'dead' || found === undefined || seq <= this.#damagedUpTo)
      return this.#settleInFile(id, seq, outcome)
    claims.delete(id)
    pending.release(1, found.message.bytes)
    commits.settle(seq)
    return claims.writeEnd(found.deliveries)
  }

  async forget(vin: string, dryRun: boolean): Promise<Forgotten> {
    const { file, pending, commits, health, states, claims, sign } = this.#parts
    // What is still to be written of its messages must not come after.
    await commits.flush()
    const erased = { messages: 0, waiting: 0, deadLetters: 0 }
    for (let after: number | undefined = -1; after !== undefined;) {
      const from: number = after
      const part: ForgottenPage = await health.read(() => file.forget(vin, from, dryRun))
      erased.messages += part.messages
      erased.waiting += part.waiting
      erased.deadLetters += part.deadLetters
      if (!dryRun) {
        this.#figures = { oldest: part.oldest, deadLetters: this.#figures.deadLetters - part.deadLetters }
        pending.release(part.pending.messages, part.pending.bytes)
      }
      after = part.next
      await setImmediate()
    }
    const notErased = await health.read(() => file.notReached(sign()))
    const result = notErased.length === 0 ? erased : { ...erased, notErased }
    if (dryRun) return result
    claims.forget(vin)
    await states?.forget(vin)
    await this.#scrub(vin)
    return result
  }

  usage(): { readonly messages: number; readonly bytes: number } {
    const { messages, bytes } = this.#parts.pending
    return { messages, bytes }
  }

  refusing(): 'inbox_full' | 'inbox_unavailable' | undefined {
    const { health, pending } = this.#parts
    return health.refusing ?? (pending.isFull ? 'inbox_full' : undefined)
  }

  stats(): InboxStats {
    const { options, settings, commits, pending } = this.#parts
    const { oldest, deadLetters } = this.#figures
    return {
      bytes: bytesOf(options.path) + bytesOf(`${options.path}-wal`),
      used: pending.usedOf(options.path),
      deadLetters,
      commitMs: commits.durations(),
      unopened: this.#unopened,
      purged: this.#purged,
      oldestWaitingMs: oldest === undefined ? undefined : Math.max(0, settings.clock.now() - msOfSeq(oldest)),
    }
  }

  async close(stoppedAtMs: number = this.#parts.settings.clock.now()): Promise<void> {
    const { file, commits, health, moves, control, sign } = this.#parts
    if (health.isClosed) return
    const wasOpen = health.closed()
    for (const stop of this.#stops) stop()
    control.close()
    if (!wasOpen) return file.close()
    moves.resume()
    const isComplete = await commits.finish().then(
      () => true,
      () => false,
    )
    health.stop()
    this.#logDropped()
    await file.close(isComplete && health.isUsable ? lastSign(sign(), stoppedAtMs) : undefined)
  }

  #committed(committed: Committed): void {
    const { settings, pending, health } = this.#parts
    this.#figures = committed
    if (committed.dropped !== undefined) this.#noteDropped(committed.dropped)
    pending.release(committed.retracted.messages, committed.retracted.bytes)
    if (!committed.hasRoom) health.noRoom()
    for (const { row, id, reason } of committed.refused ?? []) {
      // Its caller hears of a put and of a move.
      if (row === 'put' || row === 'move') continue
      settings.onFailure(new FleethookError('message_refused', reason, { hint: keptAnyway[row] }))
      if (row === 'update' && id !== undefined) settings.onRefused?.(id, reason)
    }
  }

  async #scrub(vin: string): Promise<void> {
    const { file, health } = this.#parts
    while (await health.read(() => file.scrub(vin))) await setImmediate()
  }

  /** If it fails, the next process goes on. */
  async #finishErasures(vins: readonly string[]): Promise<void> {
    const { settings, options } = this.#parts
    for (const vin of vins) await this.#scrub(vin)
    if (vins.length === 0) return
    // What to do: Nothing. Of `fleethook forget` that was interrupted, no byte is left now.
    settings.log.warn('an erasure that was interrupted is complete', { path: options.path, vehicles: vins.length })
  }

  #reopened(found: OpenedFile): void {
    const { settings, pending, states, moves, control } = this.#parts
    const { damage, messages, bytes, gaps, erasing } = found
    control.open()
    void this.#finishErasures(erasing).catch(() => {})
    this.#figures = found
    Object.assign(pending, { messages, bytes })
    moves.doubt()
    if (damage === undefined) return
    this.#damagedUpTo = this.#newestSeq
    states?.rewrite()
    for (const gap of gaps) if (gap.reason === 'inbox_damaged') settings.onGap?.(gap)
  }

  /** The file has more of the message than this process knows, or keeps it as a dead letter. */
  async #settleInFile(id: string, seq: number, outcome: Exclude<Outcome, { as: 'later' }>): Promise<void> {
    const { commits, moves, claims } = this.#parts
    if (outcome.as === 'dead') await moves.bury(seq, outcome.reason)
    else if (Number.isNaN(seq) || commits.isSettling(seq)) return
    else await moves.settle(seq)
    claims.delete(id)
  }

  async #tidy(): Promise<boolean> {
    const { file, sign, pending, health } = this.#parts
    const tidied = await file.tidy(sign(), pending.fileBytes)
    this.#figures = tidied
    if (tidied.dropped !== undefined) this.#noteDropped(tidied.dropped)
    this.#logDropped()
    if (!tidied.hasRoom) health.noRoom()
    return tidied.more
  }

  #noteDropped({ messages, expired, settled, fromMs, toMs }: Dropped): void {
    const { settings } = this.#parts
    this.#purged += settled
    if (messages === 0) return
    this.#unlogged.room += messages - expired
    this.#unlogged.expired += expired
    settings.onDropped?.(messages)
    settings.onGap?.({ reason: 'inbox_expired', fromMs, toMs, missed: messages })
  }

  #logDropped(): void {
    const { room, expired } = this.#unlogged
    const { settings, options } = this.#parts
    const { path } = options
    // What to do: Free space. A `gap` says when they were received.
    if (room > 0) settings.log.error(`the inbox ${path} dropped ${room} dead letters to make room for new messages`)
    if (expired > 0)
      // What to do: Look at dead letters sooner. A `gap` (`inbox_expired`) says when they were received.
      settings.log.warn('dead letters were deleted: their retention is over', { path, deadLetters: expired })
    Object.assign(this.#unlogged, { room: 0, expired: 0 })
  }

  /** Messages that the stored states of vehicles may lack. */
  async *#unapplied(vehicles: OpenedVehicles | undefined): AsyncGenerator<readonly InboxMessage[]> {
    const { file, health, states } = this.#parts
    for await (const page of pages(vehicles?.seq ?? -1, (after) => health.read(() => file.unapplied(after)))) {
      yield page
      const last = page.at(-1)
      if (last !== undefined) states?.recovered(seqOf(last.id))
    }
  }

  /** Messages that wait. When the file fails, it goes on where it stopped as soon as the file is usable again. */
  #waitingAfter(seq: number): AsyncIterable<readonly Waiting[]> {
    const { file, health, claims } = this.#parts
    return pages(seq, async (after) => {
      while (!health.isClosed) {
        try {
          const { items, next } = await health.read(() => file.waiting(after))
          return { items: items.map((waiting) => claims.recovered(waiting)), next }
        } catch {
          await health.whenUsable()
        }
      }
      return { items: [], next: undefined }
    })
  }
}

/** The gaps that a file reports, and a gap for the time in which a receiver that keeps no states of vehicles used it. */
function gapsOf({ gaps, vehicles }: OpenedFile, nowMs: number): readonly InboxGap[] {
  if (vehicles?.staleFromMs === undefined) return gaps
  return [...gaps, { reason: 'stopped', fromMs: Math.min(vehicles.staleFromMs, nowMs) }]
}

function bytesOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0
}
