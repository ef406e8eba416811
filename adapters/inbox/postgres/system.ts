import { randomUUID } from 'node:crypto'
import type { Clock } from '../../../src/base/clock.ts'
import type { Refusal } from '../../../src/http/answers.ts'
import type { Inbox, InboxMessage, InboxHost } from '../../../src/inbox/inbox.ts'
import type { VehicleStore } from '../../../src/inbox/vehicle-store.ts'
import type { Asked } from '../../../src/observe/observer.ts'
import type { Backlog, Failing, InboxStats } from '../../../src/observe/stats.ts'
import type { BranchGap, SharedSystem } from '../shared-inbox.ts'
import type { Signs } from '../signs-of-life.ts'
import { PostgresBranch } from './branch.ts'
import { BranchesHere } from './branches-here.ts'
import { Database, databaseError, despiteCuts, isFinal } from './client.ts'
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

/** A Postgres that several processes share. */
export class PostgresSystem implements SharedSystem, Marks {
  readonly durability = 'database'
  readonly name = 'Postgres'
  readonly db: Database
  readonly clock: Clock
  readonly #settings: PostgresSettings
  readonly #id: string = randomUUID()
  readonly #clock: ServerClock
  readonly #promises: Promises
  readonly #partitions: Partitions
  readonly #places: Places
  readonly #writer: Writer
  readonly #branches: BranchesHere

  constructor(settings: PostgresSettings, inbox: InboxHost, clock: ServerClock) {
    const { log } = inbox
    this.#settings = settings
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
      tenants: () => 1 + this.#branches.all.length,
      declared: () => [...declaredBy(inbox.receiver?.handlers?.() ?? []), ...this.#branches.declared].toSorted(),
    })
    this.#places = this.#placesOf(inbox, new Tables(settings.schema, receiver))
    this.#writer = this.#writerOf(this.#places, () => this.#branches.all)
    this.#branches = new BranchesHere({ db: this.db, log, deadForMs: settings.deadForMs, writer: this.#writer })
    this.#places.rows.others = () => this.#branches.all.map(({ places }) => places.rows)
  }

  async connect(): Promise<void> {
    await despiteCuts(() => checkServer(this.db, this.#settings.allowWeak))
    await despiteCuts(() => this.#branches.addAll())
    if (this.#settings.role !== 'receive') await this.#branches.tellLeft()
    void this.#places.watch.start()
  }

  get vehicles(): VehicleStore | undefined {
    return this.#places.vehicles
  }

  get operator(): Asked {
    return this.#places.operator
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

  handOf(branch: string | undefined): Hand | undefined {
    return branch === undefined ? this.#places : this.#branches.get(branch)?.places
  }

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
    return this.#places.read(this.#partitions, undefined, () =>
      this.#branches.tidy(this.#partitions.isFirst, this.#clock.now()),
    )
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
      room: new Room(this.db, tables, settings.limits),
      writer: this.#writerOf(places, () => []),
      partitions: this.#settings.role === 'receive' ? undefined : this.#partitions,
      takesNone,
      operator: operatedBy(places.operator),
      add: async () => {
        await connect()
        return this.#branches.add(name)
      },
    })
    this.#branches.know(inbox)
    return inbox
  }

  openGapsOfBranches(): readonly BranchGap[] {
    return this.#branches.openGaps
  }

  adoptGap(gap: BranchGap): void {
    this.#branches.adopt(gap)
  }

  refusing(): 'inbox_unavailable' | undefined {
    return this.#promises.refuses ? 'inbox_unavailable' : undefined
  }

  /** Whether nothing waits in this process, for the receiver and its branches. */
  get isIdle(): boolean {
    const readers = [this.#places, ...this.#branches.all.map(({ places }) => places)]
    return readers.every(({ reader }) => reader?.isIdle !== false)
  }

  readonly forget: NonNullable<Inbox['forget']> = async (vin, dryRun) => {
    const erased = await eraseVehicle(this.db, vin, dryRun)
    if (dryRun) return erased
    const branches = this.#branches.all.filter(({ tables }) => tables.number !== undefined)
    const all = [this.#places, ...branches.map(({ places }) => places)]
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
      unopened: this.#branches.left,
    }
  }

  /** Branches read with the connection of their receiver. */
  async readersClosed(): Promise<void> {
    for (const { whenClosed } of this.#branches.all) await whenClosed
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
}
