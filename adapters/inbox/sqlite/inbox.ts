import { statSync } from 'node:fs'
import { setImmediate } from 'node:timers/promises'
import { BelievedTime, clockAhead } from '../../../src/base/believed-time.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import type { OpenOptions } from '../../../src/hosting/drainable.ts'
import { noRequest, type RequestScope } from '../../../src/hosting/execution-context.ts'
import { seqOf } from '../../../src/inbox/delivery-id.ts'
import type {
  Archive,
  Claim,
  Erased,
  Inbox,
  InboxMessage,
  InboxHost,
  Opened,
  Outcome,
  Waiting,
} from '../../../src/inbox/inbox.ts'
import type { VehicleStore } from '../../../src/inbox/vehicle-store.ts'
import { Window } from '../../../src/inbox/window.ts'
import type { InboxStats, UnopenedInbox } from '../../../src/observe/stats.ts'
import { createControl } from './control.ts'
import type { Committed, Dropped, ForgottenPage, InboxFile, OpenedFile, StoredMessage } from './file/interface.ts'
import { receiver } from './file/readers.ts'
import { GroupCommit } from './group-commit.ts'
import { Health } from './health.ts'
import type { SqliteSettings } from './options.ts'
import { Pending } from './pending.ts'
import { Places } from './places.ts'
import { SqliteReader } from './reader.ts'
import { openWhenFree } from './recovery.ts'
import { lastSign, signOfLife } from './sign.ts'

const tidyMs = 10_000
const checkMs = 1_000

/** The parts of a SQLite inbox. Each knows only the parts before it. */
type Parts = ReturnType<typeof partsOf>
function partsOf(file: InboxFile, settings: InboxHost, options: SqliteSettings) {
  const { path } = options
  const readers = new Map<string, SqliteReader>()
  const believed = new BelievedTime(settings.clock, (aheadMs) => settings.log.warn(clockAhead, { path, aheadMs }))
  const sign = (): ReturnType<typeof signOfLife> =>
    signOfLife(
      settings,
      believed,
      [...readers.values()].map((reader) => reader.sign),
    )
  const pending = new Pending(settings.limits, options.maxBytes)
  // What waits for a branch waits for the receiver, too, or did before.
  const held = {
    get fileBytes() {
      return Math.max(pending.fileBytes, ...[...readers.values()].map((reader) => reader.fileBytes))
    },
  }
  const health = new Health({ file, settings, options, pending: held, sign })
  const commits = new GroupCommit({ file, health, believed, pending: held })
  const places = new Places({ file, settings, options, commits: commits.own, health, pending })
  const control = createControl(path, settings)
  return { file, settings, options, believed, sign, held, health, commits, places, readers, control }
}

/** The inbox of the receiver, and what all readers of its file share. */
export class SqliteInbox implements Inbox {
  readonly durability = 'disk'
  readonly time = 'kept'
  readonly states: VehicleStore | undefined
  readonly archive: Archive
  readonly #parts: Parts
  /** Dead letters that were deleted, because they had to make room or were too old, and that no line of the log has counted. */
  readonly #unlogged = { room: 0, expired: 0 }
  #purged = 0
  /** Files that hold messages, and that no receiver had open when this one started. */
  #unopened: readonly UnopenedInbox[] = []
  #newestSeq = -1
  readonly #stops: (() => void)[] = []
  readonly #opened = Promise.withResolvers<OpenedFile>()

  constructor(file: InboxFile, settings: InboxHost, options: SqliteSettings) {
    this.#parts = partsOf(file, settings, options)
    const { commits, health, places, readers, control } = this.#parts
    this.states = places.states
    this.archive = places.archive
    // Without readers, nobody waits for it.
    this.#opened.promise.catch(() => {})
    commits.onCommitted = (committed, settled) => this.#committed(committed, settled)
    health.on = {
      onClosed: () => control.close(),
      onReopened: (found) => this.#reopened(found),
      onWritable() {
        commits.resume()
        places.moves.resume()
        for (const reader of readers.values()) reader.places.moves.resume()
      },
    }
  }

  reader(name: string, settings: InboxHost): Inbox {
    const { file, options, commits, health, readers } = this.#parts
    const reader = new SqliteReader({
      name,
      file,
      settings,
      options,
      commits,
      health,
      opened: this.#opened.promise,
      newestSeq: () => this.#newestSeq,
      put: (messages, from) => this.#put(messages, from, name),
    })
    readers.set(name, reader)
    return reader
  }

  window(host: ConstructorParameters<typeof Window<Waiting>>[0]): Window<Waiting> {
    const { places } = this.#parts
    return new Window(host, (after) => places.waitingAfter(after === undefined ? -1 : seqOf(after)))
  }

  async open(openOptions?: OpenOptions): Promise<Opened> {
    const { file, settings, options, believed, sign, health, places, readers, control } = this.#parts
    const found = await openWhenFree(file, settings, options, health, () => file.open(sign(), openOptions))
    const { lastId } = found
    if (found.believed !== undefined) believed.follow(found.believed)
    this.#unopened = [...found.unopened, ...leftReaders(found, options.path)]
    if (lastId !== undefined) this.#newestSeq = seqOf(lastId)
    places.opened(found)
    if (found.unclean) places.claims.suspect(this.#newestSeq)
    for (const each of found.readers) readers.get(each.reader)?.known(each, found.unclean)
    health.opened()
    this.#stops.push(health.regularly(tidyMs, () => this.#tidy()))
    this.#stops.push(health.regularly(checkMs, () => file.check().then(() => false)))
    control.open()
    void this.#finishErasures(found.erasing).catch(() => {})
    this.#opened.resolve(found)
    return {
      lastId,
      unapplied: places.states && places.unapplied(),
      gaps: places.gaps(found.gaps),
      waiting: places.waitingAfter(-1),
    }
  }

  put(messages: readonly InboxMessage[], from?: RequestScope): Promise<void> {
    return this.#put(messages, from, receiver)
  }

  claim(id: string): Claim | undefined | Promise<Claim | undefined> {
    return this.#parts.places.claims.claim(id)
  }

  settle(id: string, outcome?: Outcome): void | Promise<void> {
    return this.#parts.places.settle(id, outcome)
  }

  async forget(vin: string, dryRun: boolean): Promise<Erased> {
    const { file, commits, health, places, readers } = this.#parts
    // What is still to be written of its messages must not come after.
    await commits.flush()
    const erased = { messages: 0, waiting: 0, deadLetters: 0 }
    const waited = new Map<string, number>([receiver, ...readers.keys()].map((name) => [name, 0]))
    for (let after: number | undefined = -1; after !== undefined;) {
      const start: number = after
      const part: ForgottenPage = await health.read(() => file.forget(vin, start, dryRun))
      erased.messages += part.messages
      erased.waiting += part.waiting
      erased.deadLetters += part.deadLetters
      for (const { reader, pending, waiting, oldest, deadLetters } of part.readers) {
        waited.set(reader, (waited.get(reader) ?? 0) + waiting)
        const its = reader === receiver ? places : readers.get(reader)?.places
        its?.pending.release(pending.messages, pending.bytes)
        if (its !== undefined) its.figures = { oldest, deadLetters }
      }
      after = part.next
      await setImmediate()
    }
    const notErased = await health.read(() => file.notReached())
    const result = notErased.length === 0 ? erased : { ...erased, notErased }
    if (dryRun) return result
    await places.forget(vin)
    for (const reader of readers.values()) await reader.places.forget(vin)
    await this.#scrub(vin)
    const { [receiver]: waitingHere = 0, ...waitingOf } = Object.fromEntries(waited)
    return { ...result, waitingHere, waitingOf }
  }

  usage(): { readonly messages: number; readonly bytes: number } {
    return this.#parts.places.usage()
  }

  refusing(): 'inbox_full' | 'inbox_unavailable' | undefined {
    const { health, places } = this.#parts
    return health.refusing ?? (places.pending.isFull ? 'inbox_full' : undefined)
  }

  stats(): InboxStats {
    const { options, commits, places } = this.#parts
    return {
      bytes: bytesOf(options.path) + bytesOf(`${options.path}-wal`),
      used: places.pending.usedOf(options.path),
      deadLetters: places.figures.deadLetters,
      commitMs: commits.durations(),
      unopened: this.#unopened,
      purged: this.#purged,
      oldestWaitingMs: places.oldestWaitingMs,
    }
  }

  async close(stoppedAtMs: number = this.#parts.settings.clock.now()): Promise<void> {
    const { file, commits, health, places, readers, control, sign } = this.#parts
    // They have the same file.
    for (const reader of readers.values()) await reader.whenClosed()
    if (health.isClosed) return
    const wasOpen = health.closed()
    this.#opened.reject(new FleethookError('inbox_unavailable', `The inbox ${this.#parts.options.path} is closed.`))
    for (const stop of this.#stops) stop()
    control.close()
    if (!wasOpen) return file.close()
    places.moves.resume()
    for (const reader of readers.values()) reader.places.moves.resume()
    const isComplete = await commits.finish().then(
      () => true,
      () => false,
    )
    health.stop()
    this.#logDropped()
    await file.close(isComplete && health.isUsable ? lastSign(sign(), stoppedAtMs) : undefined)
  }

  /** `by`: the reader that puts. What a branch puts is only for that branch. */
  async #put(messages: readonly InboxMessage[], from: RequestScope = noRequest, by: string): Promise<void> {
    const { health, places, commits, readers } = this.#parts
    const { refusal } = health
    if (refusal !== undefined) throw refusal
    const own = by === receiver ? places : readers.get(by)?.places
    let bytes = 0
    for (const message of messages) bytes += message.bytes
    own?.pending.reserve(messages.length, bytes)
    const followers = by === receiver && readers.size > 0 ? [...readers.values()].filter((each) => each.isKnown) : []
    // Timers are of the receiver's own rules.
    const shared = messages.filter(({ kind }) => kind !== 'timer')
    const followed = followers.map((reader) => reader.follow(shared))
    const rows = rowsOf(messages, by, followed)
    this.#newestSeq = Math.max(this.#newestSeq, rows.at(-1)?.seq ?? this.#newestSeq)
    try {
      await commits.put(rows, () => {
        for (const { stored } of followed) stored(from)
        if (by !== receiver) readers.get(by)?.handOut(messages, from)
      })
      if (by === receiver)
        for (const [at, message] of messages.entries()) places.claims.added(message, rows[at]?.seq ?? 0)
    } catch (error) {
      own?.pending.release(messages.length, bytes)
      for (const { refused } of followed) refused()
      throw error
    }
  }

  #committed(committed: Committed, settled: ReadonlyMap<string, ReadonlySet<number>>): void {
    const { health, places, readers } = this.#parts
    places.committed(committed, settled.get(receiver))
    for (const each of committed.readers ?? [])
      readers.get(each.reader)?.places.committed(each, settled.get(each.reader))
    this.#noteDropped([committed, ...(committed.readers ?? [])])
    if (!committed.hasRoom) health.noRoom()
    for (const row of committed.refused ?? [])
      (row.reader === receiver ? places : readers.get(row.reader)?.places)?.refused(row)
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
    const { settings, places, readers, control } = this.#parts
    const { damage, gaps, erasing } = found
    control.open()
    void this.#finishErasures(erasing).catch(() => {})
    places.reopened(found)
    for (const each of found.readers) readers.get(each.reader)?.places.reopened(each)
    for (const each of [places, ...[...readers.values()].map((reader) => reader.places)]) {
      each.moves.doubt()
      if (damage === undefined) continue
      each.damagedUpTo = this.#newestSeq
      each.states?.rewrite()
    }
    if (damage === undefined) return
    for (const gap of gaps) if (gap.reason === 'inbox_damaged') settings.on({ type: 'gap', gap })
  }

  async #tidy(): Promise<boolean> {
    const { file, sign, places, held, health, readers } = this.#parts
    const tidied = await file.tidy(sign(), held.fileBytes)
    const { oldest, deadLetters, dropped } = tidied
    places.figures = { oldest, deadLetters }
    if (dropped !== undefined) places.dropped(dropped)
    for (const each of tidied.readers ?? []) {
      const its = readers.get(each.reader)?.places
      if (its === undefined) continue
      its.figures = { oldest: each.oldest, deadLetters: each.deadLetters }
      if (each.dropped !== undefined) its.dropped(each.dropped)
    }
    this.#noteDropped([tidied, ...(tidied.readers ?? [])])
    this.#logDropped()
    if (!tidied.hasRoom) health.noRoom()
    return tidied.more
  }

  #noteDropped(parts: readonly { readonly dropped?: Dropped | undefined }[]): void {
    for (const { dropped } of parts) {
      if (dropped === undefined) continue
      const { messages, expired, settled } = dropped
      this.#purged += settled
      this.#unlogged.room += messages - expired
      this.#unlogged.expired += expired
    }
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
}

/** The rows of messages. `followed`: which of them other readers get. */
function rowsOf(
  messages: readonly InboxMessage[],
  by: string,
  followed: readonly { readonly name: string; readonly ids: ReadonlySet<string> }[],
): readonly StoredMessage[] {
  const first = seqOf(messages[0]?.id ?? '')
  const rows: StoredMessage[] = []
  for (const { id, lane, receivedAt, door, kind, text, bytes } of messages) {
    const row: StoredMessage = { seq: seqOf(id), first, id, lane, receivedAt, door, kind, text, bytes }
    if (by !== receiver || kind === 'timer') rows.push({ ...row, own: by })
    else if (followed.length === 0) rows.push(row)
    else rows.push({ ...row, readers: followed.filter(({ ids }) => ids.has(id)).map(({ name }) => name) })
  }
  return rows
}

/** Branches that the receiver no longer has, and for which messages wait. */
function leftReaders({ left }: OpenedFile, path: string): readonly UnopenedInbox[] {
  return left
    .filter(({ messages, deadLetters, isDropped }) => messages + deadLetters > 0 && !isDropped)
    .map(({ reader, messages, deadLetters }) => ({ path, branch: reader, messages, deadLetters }))
}

function bytesOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0
}
