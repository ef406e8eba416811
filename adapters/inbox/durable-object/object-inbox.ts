import { FleethookError } from '../../../src/base/errors.ts'
import { noRequest, type RequestScope } from '../../../src/hosting/execution-context.ts'
import { idWithSeq, msOfSeq, seqOf } from '../../../src/inbox/delivery-id.ts'
import type {
  Archive,
  Claim,
  Erased,
  Inbox,
  InboxMessage,
  InboxHost,
  Opened,
  Outcome,
} from '../../../src/inbox/inbox.ts'
import { laneOf } from '../../../src/inbox/receipts.ts'
import { messageOf } from '../stored-row.ts'
import { type Expended, type Followed, ObjectReader } from './object-reader.ts'
import { bitOf, bitsIn, ReceiverRows } from './place-rows.ts'
import { type ObjectOptions, Places } from './places.ts'
import type { ObjectStorage } from './platform.ts'
import { type KnownReader, ReaderRows, vehiclesOf } from './readers.ts'
import { dead, deleteMeta, prepareSchema, readMeta, type Row, waiting, writeMeta } from './rows.ts'
import { ObjectStore } from './store.ts'
import { ObjectVehicles } from './vehicles.ts'

/** The key of the time since which the states of vehicles lack messages. */
const staleKey = 'vehicles_stale_from'

const firstId = '00000000-0000-7000-8000-000000000000'

const expendedAtOnce = 100

/**
 * The inbox of the receiver in an object, and what it shares with its branches. Nothing waits for the disk: the platform holds back each answer until what was
 * written is on several machines.
 */
export class ObjectInbox implements Inbox {
  readonly durability = 'replicated'
  /** Time passes without the object. */
  readonly time = 'elsewhere'
  readonly states: ObjectVehicles | undefined
  readonly archive: Archive
  readonly readers: Map<string, ObjectReader> = new Map()
  readonly #store: ObjectStore
  readonly #places: Places
  readonly #knownReaders: ReaderRows
  readonly #settings: InboxHost
  readonly #options: ObjectOptions
  readonly #opened = Promise.withResolvers<void>()
  /** The states of vehicles are from this time, and no gap event reports that yet. */
  #staleFromMs: number | undefined
  #lastId: string | undefined
  #isClosed = false

  constructor(storage: ObjectStorage, options: ObjectOptions, settings: InboxHost) {
    const store = new ObjectStore(storage)
    this.#store = store
    this.#settings = settings
    this.#options = options
    this.#knownReaders = new ReaderRows(store)
    const rows = new ReceiverRows(store.rows)
    this.#places = new Places({ store, rows, table: 'fleethook_vehicles', settings, options })
    this.states = this.#places.vehicles
    this.archive = this.#places.archive
    // Without readers, nobody waits for it.
    this.#opened.promise.catch(() => {})
  }

  reader(name: string, settings: InboxHost): ObjectReader {
    const known = (): KnownReader =>
      this.#knownReaders.all().find((each) => each.name === name) ?? this.#knownReaders.add(name)
    const reader = new ObjectReader({
      name,
      store: this.#store,
      knownReaders: this.#knownReaders,
      settings,
      options: this.#options,
      opened: async () => {
        await this.#opened.promise
        if (!reader.isKnown) reader.known(known(), this.#newest)
        return this.#lastId
      },
      put: (messages, from) => this.#put(messages, from, reader),
    })
    this.readers.set(name, reader)
    return reader
  }

  async open(): Promise<Opened> {
    const { sql } = this.#store.storage
    this.#store.storage.transactionSync(() => prepareSchema(sql))
    this.#store.count()
    const all = this.#knownReaders.all()
    this.#lastId = this.#newestId(all)
    for (const each of all) if (!this.readers.has(each.name)) this.#left(each)
    const known = all.filter(({ name }) => this.readers.has(name))
    this.#places.opened(this.#newest)
    for (const [name, reader] of this.readers)
      reader.known(known.find((each) => each.name === name) ?? this.#knownReaders.add(name), this.#newest)
    this.#opened.resolve()
    return { lastId: this.#lastId, gaps: this.#staleness(), waiting: this.#places.waiting() }
  }

  async put(messages: readonly InboxMessage[], from?: RequestScope): Promise<void> {
    this.#put(messages, from)
  }

  claim(id: string): Promise<Claim | undefined> {
    return this.#places.claim(id)
  }

  settle(id: string, outcome?: Outcome): Promise<void> {
    return this.#places.settle(id, outcome)
  }

  async forget(vin: string, dryRun: boolean): Promise<Erased> {
    const { rows } = this.#store
    const own = `lane = ? OR (lane GLOB '[*][^*]*' AND instr(lower(text), lower(?)) > 0)`
    const found = rows(`SELECT place, kind, state, readers FROM fleethook_messages WHERE ${own}`, laneOf(vin), vin)
    const letters = rows(
      `SELECT reader, place FROM fleethook_places WHERE state = ${dead} AND place IN (SELECT place FROM fleethook_messages WHERE ${own})`,
      ...[laneOf(vin), vin],
    )
    const known = this.#knownReaders.all()
    if (!dryRun) {
      rows(
        `DELETE FROM fleethook_places WHERE place IN (SELECT place FROM fleethook_messages WHERE ${own})`,
        ...[laneOf(vin), vin],
      )
      rows(`DELETE FROM fleethook_messages WHERE ${own}`, laneOf(vin), vin)
      this.#places.states.erase(vin)
      for (const { name } of known) {
        const its = this.readers.get(name)?.places.states ?? new ObjectVehicles(rows, vehiclesOf(name))
        its.erase(vin)
      }
      this.#store.count()
      this.#places.room.count()
      for (const { isKnown, places } of this.readers.values()) if (isKnown) places.room.count()
    }
    return erasedOf(found, letters, known)
  }

  usage(): { readonly messages: number; readonly bytes: number } {
    return { ...this.#places.room.pending }
  }

  refusing(): 'inbox_full' | 'inbox_unavailable' | undefined {
    if (this.#isClosed) return 'inbox_unavailable'
    return this.#places.room.fits(1, 1) ? undefined : 'inbox_full'
  }

  async close(): Promise<void> {
    for (const reader of this.readers.values()) reader.saveGaps()
    if (!this.#isClosed && this.#lastId !== undefined) writeMeta(this.#store.storage.sql, 'last_id', this.#lastId)
    this.#isClosed = true
  }

  /** Messages wait, for the receiver or a branch. */
  get isWaiting(): boolean {
    return this.#all.some(({ room }) => room.pending.messages > 0)
  }

  /** The number of messages that are handed out now, and of all claims so far. They show whether anything is going on. */
  activity(): { readonly handedOut: number; readonly claims: number } {
    let [handedOut, claims] = [0, 0]
    for (const places of this.#all) {
      handedOut += places.handedOut.size
      claims += places.claims
    }
    return { handedOut, claims }
  }

  /** Deletes dead letters whose retention is over, and writes what branches have not reported. */
  sweep(nowMs: number): void {
    for (const { room } of this.#all) room.sweep(nowMs)
    for (const reader of this.readers.values()) reader.saveGaps()
  }

  get #all(): readonly Places[] {
    return [this.#places, ...[...this.readers.values()].flatMap(({ isKnown, places }) => (isKnown ? places : []))]
  }

  /** The place of the newest message that there ever was. */
  get #newest(): number {
    return this.#lastId === undefined ? -1 : seqOf(this.#lastId)
  }

  /** The newest id of a message that waits, that an earlier object settled, or that a state of a vehicle has seen. */
  #newestId(known: readonly KnownReader[]): string | undefined {
    const { rows, storage } = this.#store
    const [last] = rows('SELECT id FROM fleethook_messages ORDER BY place DESC LIMIT 1')
    const settled = readMeta(storage.sql, 'last_id')
    const states = [this.#places.states, ...known.map(({ name }) => new ObjectVehicles(rows, vehiclesOf(name)))]
    const seen = states.flatMap((each) => each.newestPlace() ?? [])
    const ids = [
      ...seen.map((place) => idWithSeq(firstId, place)),
      ...(settled === undefined ? [] : [settled]),
      ...(last === undefined ? [] : [messageOf(last).id]),
    ]
    return ids.toSorted((one, other) => seqOf(one) - seqOf(other)).at(-1)
  }

  /** \`by\`: the branch that puts, for itself only. */
  #put(messages: readonly InboxMessage[], from: RequestScope = noRequest, by?: ObjectReader): void {
    if (this.#isClosed) throw new FleethookError('inbox_unavailable', 'The inbox was closed.')
    let bytes = 0
    for (const message of messages) bytes += message.bytes
    const { room } = by?.places ?? this.#places
    room.enter(messages.length, bytes)
    let followed: readonly Followed[] = []
    try {
      this.#makeRoom(bytes)
      if (by === undefined) followed = this.#followed(messages)
      this.#store.storage.transactionSync(() => {
        for (const message of messages)
          this.#store.insert(message, by?.bit ?? bitsOf(followed, message), by !== undefined)
        if (messages.some(({ kind }) => kind === 'gap')) this.#gapKept(by)
      })
    } catch (error) {
      room.leave(messages.length, bytes)
      for (const each of followed) each.refused()
      const [first] = messages
      throw first === undefined || error instanceof FleethookError ? error : this.#store.refusalOf(first.id, error)
    }
    this.#store.bytes += bytes
    for (const { id } of messages) if (this.#lastId === undefined || id > this.#lastId) this.#lastId = id
    this.#options.kept()
    for (const each of followed) each.stored(from)
    by?.handOut(messages, from)
  }

  /** Which branches get these messages. Timers are of the receiver's own rules. */
  #followed(messages: readonly InboxMessage[]): readonly Followed[] {
    const known = [...this.readers.values()].filter(({ isKnown }) => isKnown)
    const shared = known.length === 0 ? [] : messages.filter(({ kind }) => kind !== 'timer')
    return shared.length === 0 ? [] : known.map((reader) => reader.follow(shared))
  }

  /** The oldest messages that only branches need make room: a branch that is behind never makes its receiver refuse. */
  #makeRoom(bytes: number): void {
    const { maxBytes } = this.#options
    const store = this.#store
    while (store.bytes + bytes > maxBytes) {
      const oldest = store.expendable(expendedAtOnce)
      // Only what a branch puts can be too much then: the receiver has counted its own.
      if (oldest.length === 0) throw new FleethookError('inbox_full', 'This object is full.')
      const gone: Expended[] = []
      for (const { place, id, kind, bytes: size, readers } of oldest) {
        if (store.bytes + bytes <= maxBytes) break
        const deadIn = store.expend(Number(place))
        store.bytes -= Number(size)
        gone.push({
          id: String(id),
          place: Number(place),
          bytes: Number(size),
          readers: Number(readers),
          isOfWire: kind === 'wire',
          deadIn,
        })
      }
      for (const reader of this.readers.values()) reader.expended(gone)
      this.#logExpended(gone)
    }
  }

  /** Messages of branches that this receiver does not have: nobody else tells. */
  #logExpended(gone: readonly Expended[]): void {
    const here = new Set([...this.readers.values()].map(({ bit }) => bit))
    const messages = gone.filter(({ readers }) => !bitsIn(readers).every((bit) => here.has(bit))).length
    // What to do about `messages of a removed branch had to make room for new ones`: Add the branch again, or raise `maxBytes`.
    if (messages > 0)
      this.#settings.log.error('messages of a removed branch had to make room for new ones', { messages })
  }

  /** The event of a gap is kept, which says that states of vehicles lack messages. */
  #gapKept(by: ObjectReader | undefined): void {
    if (by !== undefined) by.gapKept()
    else if (this.#staleFromMs !== undefined) deleteMeta(this.#store.storage.sql, staleKey)
  }

  /** States miss what a receiver without the part `vehicles` settles. Returns the gap that says so to the next one. */
  #staleness(): Opened['gaps'] {
    const { sql } = this.#store.storage
    const noted = readMeta(sql, staleKey)
    if (this.states === undefined && noted === undefined) {
      const newest = this.#places.states.newestPlace()
      if (newest !== undefined) writeMeta(sql, staleKey, String(msOfSeq(newest)))
    }
    if (this.states === undefined || noted === undefined) return undefined
    this.#staleFromMs = Number(noted)
    return [{ reason: 'stopped', fromMs: this.#staleFromMs }]
  }

  /** The receiver has no such branch any more. What waits for it stays for as long as dead letters do. */
  #left(reader: KnownReader): void {
    const { clock, log } = this.#settings
    const { name: branch, number, leftAt } = reader
    const { messages, deadLetters } = this.#knownReaders.left(number)
    const nowMs = clock.now()
    if (leftAt === undefined) this.#knownReaders.note(number, { left_at: nowMs })
    else if (nowMs - leftAt > this.#options.dead.forMs) {
      this.#knownReaders.drop(reader)
      log.warn('what waited for a removed branch was dropped', { branch, messages, deadLetters })
      return
    }
    // What to do about `… messages and … dead letters wait for the branch …, which the receiver does not have`: Add the branch again: see
    // [branches](branches.md). With no handler, it drops what waits.
    if (messages + deadLetters > 0)
      log.warn(
        `${messages} messages and ${deadLetters} dead letters wait for the branch ${branch}, which the receiver does not have`,
      )
  }
}

/** The branches that get a message, in its row. */
function bitsOf(followed: readonly Followed[], { id }: InboxMessage): number {
  let bits = 0
  for (const { bit, ids } of followed) if (ids.has(id)) bits += bit
  return bits
}

/** What was erased. A message counts once, however many readers had it. */
function erasedOf(found: readonly Row[], letters: readonly Row[], known: readonly KnownReader[]): Erased {
  const deadIn = new Set(letters.map(({ reader, place }) => `${Number(reader)} ${Number(place)}`))
  const counts = new Map(known.map(({ name }) => [name, 0]))
  const erased = { messages: found.length, waiting: 0, deadLetters: 0 }
  let waitingHere = 0
  for (const { place, kind, state, readers } of found) {
    const having = known.filter(({ number }) => bitsIn(Number(readers)).includes(bitOf(number)))
    const waitingIn = having.filter(({ number }) => !deadIn.has(`${number} ${Number(place)}`))
    if (state === dead || waitingIn.length < having.length) erased.deadLetters += 1
    if (kind !== 'wire') continue
    if (state === waiting) waitingHere += 1
    for (const { name } of waitingIn) counts.set(name, (counts.get(name) ?? 0) + 1)
    if (state === waiting || waitingIn.length > 0) erased.waiting += 1
  }
  return known.length === 0 ? erased : { ...erased, waitingHere, waitingOf: Object.fromEntries(counts) }
}
