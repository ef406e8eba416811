import { randomUUID } from 'node:crypto'
import type { Clock } from '../../../src/base/clock.ts'
import type { Refusal } from '../../../src/http/answers.ts'
import type { Inbox, InboxMessage, InboxHost } from '../../../src/inbox/inbox.ts'
import type { VehicleStore } from '../../../src/inbox/vehicle-store.ts'
import type { Asked } from '../../../src/observe/observer.ts'
import type { Backlog, Failing, InboxStats, UnopenedInbox } from '../../../src/observe/stats.ts'
import type { BranchGap, SharedSystem } from '../shared-inbox.ts'
import type { Signs } from '../signs-of-life.ts'
import { PostgresBranch } from './branch.ts'
import {
  type AddedBranch,
  addBranch,
  branchesGoneBefore,
  dropBranch,
  leftBranches,
  noteGone,
  noteUsed,
} from './branches.ts'
import { Database, databaseError, despiteCuts, isFinal, stateOf } from './client.ts'
import { eraseVehicle } from './erasing.ts'
import type { Hand, Marks } from './exactly-once.ts'
import { declaredBy } from './handling.ts'
import { signsIn } from './life.ts'
import type { PostgresSettings } from './options.ts'
import { Partitions } from './partitions.ts'
import { Places } from './places.ts'
import { promisedBy, Promises } from './promises.ts'
import type { Reader } from './reader.ts'
import { Room } from './room.ts'
import { checkServer } from './schema.ts'
import type { ServerClock } from './server-clock.ts'
import { receiver, Tables } from './tables.ts'
import { Writer } from './writer.ts'

/** After this time without a process that has it, new messages are not for a branch, in milliseconds. */
const unusedMs = 5 * 60_000

/** A Postgres that several processes share. */
export class PostgresSystem implements SharedSystem, Marks {
  readonly durability = 'database'
  readonly name = 'Postgres'
  readonly operator: Asked
  readonly db: Database
  readonly clock: Clock
  readonly vehicles: VehicleStore | undefined
  readonly #settings: PostgresSettings
  readonly #inbox: InboxHost
  readonly #id: string = randomUUID()
  readonly #clock: ServerClock
  readonly #promises: Promises
  readonly #partitions: Partitions
  readonly #places: Places
  readonly #writer: Writer
  /** The branches of this process, by name. */
  readonly #branches = new Map<string, { readonly inbox: PostgresBranch; added: AddedBranch | undefined }>()
  /** What waits for branches that this process does not have. */
  #unopened: readonly UnopenedInbox[] = []

  constructor(settings: PostgresSettings, inbox: InboxHost, clock: ServerClock) {
    const { log } = inbox
    this.#settings = settings
    this.#inbox = inbox
    this.#clock = clock
    this.clock = inbox.clock
    this.#promises = new Promises(log, clock, settings.allowWeak)
    this.db = new Database(settings.db, settings.schema, clock, (row, sentMs) => {
      clock.learn(Number(row['server_ms']), sentMs)
      this.#promises.note(promisedBy(row))
    })
    this.#partitions = new Partitions({
      db: this.db,
      clock: inbox.clock,
      leaseMs: settings.leaseMs,
      me: this.#id,
      local: clock.local,
      log,
      declared: () => this.#declared(),
    })
    this.#places = this.#placesOf(inbox, new Tables(settings.schema, receiver))
    this.vehicles = this.#places.vehicles
    this.operator = this.#places.operator
    this.#writer = this.#writerOf(this.#places, () => [...this.#branches.values()].map((branch) => branch.inbox))
    this.#places.rows.others = () => [...this.#branches.values()].map((branch) => branch.inbox.places.rows)
  }

  async connect(): Promise<void> {
    await despiteCuts(() => checkServer(this.db, this.#settings.allowWeak))
    for (const name of this.#branches.keys()) await despiteCuts(() => this.#add(name))
    if (this.#settings.role !== 'receive') await this.#tellLeft()
    void this.#places.watch.start()
  }

  mayPass(error: unknown): boolean {
    return databaseError(error).code === 'inbox_unavailable' && !isFinal(error)
  }

  backlog(): Backlog | undefined {
    return this.#places.watch.backlog
  }

  failing(): Failing {
    return this.#places.watch.failing
  }

  get me(): string {
    return this.#partitions.me
  }

  signs(): Signs {
    return signsIn(this.db, this.#id)
  }

  readonly handOf = (branch: string | undefined): Hand | undefined =>
    branch === undefined ? this.#places : this.#branches.get(branch)?.inbox.places

  /** Order is kept over all vehicles: the event of a gap of all of them goes in front of the messages that follow it. */
  wayOf(): number {
    return 0
  }

  put(messages: readonly InboxMessage[]): Promise<void> {
    return this.#writer.put(messages)
  }

  takeBack(): void {
    this.#writer.takeBack()
  }

  read(): Reader {
    return this.#places.read(this.#partitions, undefined, () => this.#tidyBranches())
  }

  readonly reader = (
    name: string,
    settings: InboxHost,
    takesNone: Refusal | undefined,
    connect: () => Promise<void>,
    operatedBy: (operator: Asked) => Asked,
  ): Inbox => {
    const tables = new Tables(this.#settings.schema)
    const places = this.#placesOf(settings, tables)
    const inbox = new PostgresBranch({
      name,
      db: this.db,
      settings,
      places,
      room: new Room(this.db, tables, settings),
      writer: this.#writerOf(places, () => []),
      partitions: this.#settings.role === 'receive' ? undefined : this.#partitions,
      takesNone,
      operator: operatedBy(places.operator),
      add: async () => {
        await connect()
        return this.#branches.get(name)?.added ?? this.#add(name)
      },
    })
    this.#branches.set(name, { inbox, added: undefined })
    return inbox
  }

  openGapsOfBranches(): readonly BranchGap[] {
    return [...this.#branches].flatMap(([branch, { inbox }]) =>
      inbox.openGaps.map((gap) => Object.assign({ branch }, gap)),
    )
  }

  adoptGap(gap: BranchGap): void {
    this.#branches.get(gap.branch)?.inbox.adopt(gap)
  }

  refusing(): 'inbox_unavailable' | undefined {
    return this.#promises.refuses ? 'inbox_unavailable' : undefined
  }

  /** Whether nothing waits in this process, for the receiver and its branches. */
  get isIdle(): boolean {
    const readers = [this.#places, ...[...this.#branches.values()].map(({ inbox }) => inbox.places)]
    return readers.every(({ reader }) => reader?.isIdle !== false)
  }

  readonly forget: NonNullable<Inbox['forget']> = async (vin, dryRun) => {
    const erased = await eraseVehicle(this.db, vin, dryRun)
    if (dryRun) return erased
    const branches = [...this.#branches.values()].filter(({ added }) => added !== undefined)
    const all = [this.#places, ...branches.map(({ inbox }) => inbox.places)]
    for (const { reader } of all) reader?.letGoOf(vin)
    // Another process may have its state in memory, and may have written it again with a message that ended during the deletion.
    for (const { rows } of all) await rows.forget(vin)
    return erased
  }

  facts(): readonly string[] {
    const { now } = this.#promises
    if (this.#settings.role === 'handle' || now === undefined) return []
    const { weakness, isReplicated } = now
    if (weakness !== undefined)
      return [
        `In this Postgres ${weakness}, and \`allowWeak\` accepts that: a crash of it can lose acknowledged messages.`,
      ]
    return [
      isReplicated
        ? 'A 2xx means that Postgres and a synchronous standby have the message on disk.'
        : 'A 2xx means that Postgres has the message on disk. A failover to an asynchronous replica can lose the newest ones.',
    ]
  }

  figures(): InboxStats {
    const { reader } = this.#places
    return {
      ...reader?.figures,
      purged: reader?.purged ?? 0,
      oldestWaitingMs: reader?.oldestMs(),
      unopened: this.#unopened,
    }
  }

  /** Branches read with the connection of their receiver. */
  async readersClosed(): Promise<void> {
    await Promise.all([...this.#branches.values()].map(({ inbox }) => inbox.whenClosed))
  }

  async close(): Promise<void> {
    this.#promises.stop()
    this.#places.watch.stop()
    await this.#writer.close()
    this.db.close()
  }

  #placesOf(inbox: InboxHost, tables: Tables): Places {
    return new Places({ db: this.db, clock: this.#clock, settings: this.#settings, inbox, tables })
  }

  #writerOf(places: Places, followers: () => readonly PostgresBranch[]): Writer {
    return new Writer({
      db: this.db,
      clock: this.#clock,
      confirmMs: this.#settings.confirmMs,
      promises: this.#promises,
      tables: places.tables,
      followers,
      committed: () => places.reader?.lookNow(),
    })
  }

  /** A process that lacks a branch of another one handles nothing: it would settle messages of the branch without its handlers. */
  #declared(): readonly string[] {
    const { handlers = () => [] } = this.#inbox
    const ofBranches = [...this.#branches].flatMap(([name, { inbox }]) => [
      `branch ${name}`,
      ...declaredBy(inbox.handlers()).map((one) => `branch ${name} ${one}`),
    ])
    return [...declaredBy(handlers()), ...ofBranches].toSorted()
  }

  /** Gives a branch its places. `undefined`: not yet. */
  async #add(name: string): Promise<AddedBranch | undefined> {
    const branch = this.#branches.get(name)
    if (branch === undefined) return undefined
    // Two processes may add two branches at once, and one of them finds the number of the other.
    for (let tries = 0; branch.added === undefined; tries += 1)
      try {
        branch.added = await addBranch(this.db, name)
        break
      } catch (error) {
        if (tries >= 9 || stateOf(error) !== '23505') throw error
      }
    if (branch.added !== undefined) this.#writer.knows(branch.added.number)
    return branch.added
  }

  async #tellLeft(): Promise<void> {
    const { log } = this.#inbox
    this.#unopened = await leftBranches(this.db, [...this.#branches.keys()])
    for (const { path, branch, messages, deadLetters } of this.#unopened)
      log.warn(
        // What to do: Add the branch again, give what waits to another name with `fleethook branch rename`, or delete it with `fleethook branch drop`.
        `${messages} messages and ${deadLetters} dead letters wait for the branch ${String(branch)}, which the receiver of ${path} does not have`,
      )
  }

  async #tidyBranches(): Promise<void> {
    const names = [...this.#branches].flatMap(([name, { added }]) => (added === undefined ? [] : [name]))
    const { log } = this.#inbox
    await noteUsed(this.db, names)
    // One process is enough, and one that handles nothing does not know.
    if (!this.#partitions.isFirst) return
    for (const branch of await noteGone(this.db, names, unusedMs))
      // What to do: Normal when you removed it. Messages wait until it is back, and a `gap` (`stopped`) then says since when it gets no new ones.
      log.warn('no process has this branch any more, so new messages are not for it', { branch })
    for (const branch of await branchesGoneBefore(this.db, this.#clock.now() - this.#settings.deadForMs))
      // What to do: Nothing. No process had it for as long as dead letters are kept.
      log.warn('what waited for a removed branch was dropped', { branch, ...(await dropBranch(this.db, branch)) })
  }
}
