import { randomUUID } from 'node:crypto'
import type { BackendParts } from '../../../src/backend/backend.ts'
import type { Clock } from '../../../src/base/clock.ts'
import { guardedLog } from '../../../src/base/log.ts'
import { clockAhead } from '../../../src/inbox/believed-time.ts'
import type { Refusal } from '../../../src/http/answers.ts'
import type {
  DeadLetters,
  Forgotten,
  Messages,
  Replayed,
  ReplayPage,
  ReplaySelection,
} from '../../../src/inbox/dead-letters.ts'
import type { InboxMessage, InboxSettings } from '../../../src/inbox/inbox.ts'
import { failingOf } from '../../../src/inbox/failing.ts'
import type { Backlog, Failing, InboxStats } from '../../../src/inbox/stats.ts'
import type { Signs } from '../signs-of-life.ts'
import { deadLettersOf, type SharedInbox, type SharedSystem } from '../two-halves.ts'
import { failingMessages, Watch } from './backlog.ts'
import { Database } from './client.ts'
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
  readonly deadLetters: DeadLetters
  readonly messages: Messages
  readonly db: Database
  readonly #settings: PostgresSettings
  readonly #parts: BackendParts
  readonly #id: string = randomUUID()
  readonly #clock: ServerClock
  readonly #store: Store
  readonly #writer: Writer
  readonly #promises: Promises
  readonly #watch: Watch
  readonly vehicles: VehicleRows | undefined
  /** The half behind, once it is open. */
  reader: Reader | undefined

  constructor(settings: PostgresSettings, parts: BackendParts, clock: ServerClock) {
    this.#settings = settings
    this.#parts = parts
    this.#clock = clock
    this.db = new Database(settings.db, settings.schema, clock, (row, sentMs) => {
      clock.learn(Number(row['server_ms']), sentMs)
      this.#promises.note(promisedBy(row))
    })
    this.vehicles = parts.vehicles && new VehicleRows(this.db)
    this.#store = new Store(this.db, clock, settings, (aheadMs) =>
      guardedLog(parts.settings.log).warn(clockAhead, { schema: settings.schema, aheadMs }),
    )
    this.#promises = new Promises(guardedLog(parts.settings.log), clock, settings.allowWeak)
    this.#writer = new Writer(this.db, clock, settings.confirmMs, this.#promises, () => this.reader?.lookNow())
    this.#watch = new Watch(this.db, clock, guardedLog(parts.settings.log))
    this.deadLetters = deadLettersOf(this.#store, parts.receipts.reread)
    this.messages = this.#store.listing(parts.receipts.reread)
  }

  async connect(): Promise<void> {
    await checkServer(this.db, this.#settings.allowWeak)
    void this.#watch.start()
  }

  backlog(): Backlog | undefined {
    return this.#watch.backlog
  }

  failing(): Failing {
    return this.#watch.failing
  }

  async failingNow(): Promise<Failing> {
    return failingOf(await failingMessages(this.db), true)
  }

  get me(): string {
    return this.reader?.me ?? this.#id
  }

  signs(): Signs {
    return signsIn(this.db, this.#id)
  }

  get clock(): Clock {
    return this.#parts.settings.clock
  }

  placeOf(id: string): Place | undefined {
    return this.reader?.placeOf(id)
  }

  async put(messages: readonly InboxMessage[]): Promise<Refusal | undefined> {
    await this.#writer.put(messages)
    return undefined
  }

  inbox(inbox: InboxSettings): SharedInbox {
    this.reader = new Reader({
      db: this.db,
      settings: this.#settings,
      inbox,
      store: this.#store,
      vehicles: this.vehicles,
      me: this.#id,
      local: this.#clock.local,
      declared: () => declaredBy(this.#parts.registry.added),
      put: (messages) => this.#writer.put(messages),
    })
    return this.reader
  }

  refusing(): 'inbox_unavailable' | undefined {
    return this.#promises.refuses ? 'inbox_unavailable' : undefined
  }

  async replay(which: ReplaySelection): Promise<number> {
    return this.#store.replayHandled(which, this.#parts.receipts.reread)
  }

  async replaySome(which: ReplayPage): Promise<Replayed> {
    return this.#store.replaySome(which, this.#parts.receipts.reread)
  }

  async forget(vin: string, dryRun: boolean): Promise<Forgotten> {
    // Another process may have its state in memory.
    if (!dryRun && this.vehicles === undefined) await new VehicleRows(this.db).forget(vin)
    const erased = await this.#store.forget(vin, dryRun)
    if (!dryRun) this.reader?.letGoOf(vin)
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
    const oldestWaitingMs = this.reader?.oldestMs()
    return {
      ...this.reader?.figures,
      purged: this.reader?.purged ?? 0,
      ...(oldestWaitingMs === undefined ? {} : { oldestWaitingMs }),
    }
  }

  close(): Promise<void> {
    this.#promises.stop()
    this.#watch.stop()
    return this.#writer.close()
  }
}
