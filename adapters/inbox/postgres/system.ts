import { randomUUID } from 'node:crypto'
import type { Clock } from '../../../src/base/clock.ts'
import { createMessages, deadLettersOf } from '../../../src/operator/archive.ts'
import { clockAhead } from '../../../src/base/believed-time.ts'
import { type Backlog, type Failing, failingOf, type InboxStats } from '../../../src/observe/stats.ts'
import type { Inbox, InboxMessage, InboxHost } from '../../../src/inbox/inbox.ts'
import { readsNothing } from '../forwarding.ts'
import type { Signs } from '../signs-of-life.ts'
import type { Asked } from '../../../src/observe/observer.ts'
import type { SharedSystem } from '../shared-inbox.ts'
import { failingMessages, Watch } from './backlog.ts'
import { Database, databaseError, despiteCuts, isFinal } from './client.ts'
import { declaredBy } from './handling.ts'
import type { Place } from './endings.ts'
import type { Marks } from './exactly-once.ts'
import { signsIn } from './life.ts'
import type { PostgresSettings } from './options.ts'
import { Reader } from './reader.ts'
import { promisedBy, Promises } from './promises.ts'
import { checkServer } from './schema.ts'
import type { ServerClock } from './server-clock.ts'
import { Store } from './store.ts'
import { VehicleRows } from './vehicles.ts'
import { Writer } from './writer.ts'

/** A Postgres that several processes share. */
export class PostgresSystem implements SharedSystem, Marks {
  readonly durability = 'database'
  readonly name = 'Postgres'
  readonly operator: Asked
  readonly db: Database
  readonly clock: Clock
  readonly #settings: PostgresSettings
  readonly #inbox: InboxHost
  readonly #id: string = randomUUID()
  readonly #clock: ServerClock
  readonly #store: Store
  readonly #writer: Writer
  readonly #promises: Promises
  readonly #watch: Watch
  /** Also without states, a process that has a vehicle says that nothing of it is left here. */
  readonly #rows: VehicleRows
  readonly vehicles: VehicleRows | undefined
  /** The partitions of this process, once they are read. */
  reader: Reader | undefined

  constructor(settings: PostgresSettings, inbox: InboxHost, clock: ServerClock) {
    const { log, read = readsNothing } = inbox
    this.#settings = settings
    this.#inbox = inbox
    this.#clock = clock
    this.clock = inbox.clock
    this.db = new Database(settings.db, settings.schema, clock, (row, sentMs) => {
      clock.learn(Number(row['server_ms']), sentMs)
      this.#promises.note(promisedBy(row))
    })
    this.#rows = new VehicleRows(this.db)
    this.vehicles = inbox.keepsVehicles === true ? this.#rows : undefined
    const store = new Store(this.db, clock, settings, (aheadMs) =>
      log.warn(clockAhead, { schema: settings.schema, aheadMs }),
    )
    this.#store = store
    this.#promises = new Promises(log, clock, settings.allowWeak)
    this.#writer = new Writer(this.db, clock, settings.confirmMs, this.#promises, () => this.reader?.lookNow())
    this.#watch = new Watch(this.db, clock, log)
    this.operator = {
      deadLetters: deadLettersOf(store, read),
      messages: createMessages(store, read),
      replay: (which) => store.replayHandled(which, read),
      replaySome: (which) => store.replaySome(which, read),
      failing: async () => failingOf(await failingMessages(this.db), true),
    }
  }

  async connect(): Promise<void> {
    await despiteCuts(() => checkServer(this.db, this.#settings.allowWeak))
    void this.#watch.start()
  }

  mayPass(error: unknown): boolean {
    return databaseError(error).code === 'inbox_unavailable' && !isFinal(error)
  }

  backlog(): Backlog | undefined {
    return this.#watch.backlog
  }

  failing(): Failing {
    return this.#watch.failing
  }

  get me(): string {
    return this.reader?.me ?? this.#id
  }

  signs(): Signs {
    return signsIn(this.db, this.#id)
  }

  placeOf(id: string): Place | undefined {
    return this.reader?.placeOf(id)
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
    const { handlers = () => [] } = this.#inbox
    this.reader = new Reader({
      db: this.db,
      settings: this.#settings,
      inbox: this.#inbox,
      store: this.#store,
      vehicles: this.#rows,
      me: this.#id,
      local: this.#clock.local,
      declared: () => declaredBy(handlers()),
    })
    return this.reader
  }

  refusing(): 'inbox_unavailable' | undefined {
    return this.#promises.refuses ? 'inbox_unavailable' : undefined
  }

  readonly forget: NonNullable<Inbox['forget']> = async (vin, dryRun) => {
    const erased = await this.#store.forget(vin, dryRun)
    if (dryRun) return erased
    this.reader?.letGoOf(vin)
    // Another process may have its state in memory, and may have written it again with a message that ended during the deletion.
    await this.#rows.forget(vin)
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
    return { ...this.reader?.figures, purged: this.reader?.purged ?? 0, oldestWaitingMs: this.reader?.oldestMs() }
  }

  async close(): Promise<void> {
    this.#promises.stop()
    this.#watch.stop()
    await this.#writer.close()
    this.db.close()
  }
}
