import { clockAhead } from '../../../src/base/believed-time.ts'
import type { InboxHost } from '../../../src/inbox/inbox.ts'
import type { Asked } from '../../../src/observe/observer.ts'
import { failingOf } from '../../../src/observe/stats.ts'
import { createMessages, deadLettersOf } from '../../../src/inbox/archive.ts'
import { failingMessages, Watch } from './backlog.ts'
import type { Database } from './client.ts'
import type { Place } from './endings.ts'
import type { Hand } from './exactly-once.ts'
import type { PostgresSettings } from './options.ts'
import type { Partitions } from './partitions.ts'
import { Reader } from './reader.ts'
import type { Room } from './room.ts'
import type { ServerClock } from './server-clock.ts'
import { Store } from './store.ts'
import type { Tables } from './tables.ts'
import { VehicleRows } from './vehicles.ts'

interface PlacesParts {
  readonly db: Database
  readonly clock: ServerClock
  readonly settings: PostgresSettings
  readonly inbox: InboxHost
  readonly tables: Tables
}

/** What one reader of the inbox still has to do, has done and has given up: in its tables, and as far as this process has it. */
export class Places implements Hand {
  readonly tables: Tables
  /** Also without states, a process that has a vehicle says that nothing of it is left here. */
  readonly rows: VehicleRows
  readonly vehicles: VehicleRows | undefined
  readonly operator: Asked
  readonly watch: Watch
  /** The partitions of this process, once they are read. */
  reader: Reader | undefined
  readonly #parts: PlacesParts
  readonly #store: Store

  constructor(parts: PlacesParts) {
    const { db, clock, settings, inbox, tables } = parts
    const { log, read } = inbox
    this.#parts = parts
    this.tables = tables
    this.rows = new VehicleRows(db, tables)
    this.vehicles = inbox.states !== undefined ? this.rows : undefined
    const onAhead = (aheadMs: number): void => log.warn(clockAhead, { schema: settings.schema, aheadMs })
    const store = new Store(db, clock, settings, onAhead, tables)
    this.#store = store
    this.watch = new Watch(db, tables, clock, log)
    this.operator = {
      deadLetters: deadLettersOf(store, read),
      messages: createMessages(store, read),
      replay: (which) => store.replayHandled(which, read),
      replaySome: (which) => store.replaySome(which, read),
      failing: async () => failingOf(await failingMessages(db, tables), true),
    }
  }

  /** `room`: of a branch. `beside`: what is tidied besides, every minute. */
  read(partitions: Partitions, room?: Room, beside?: () => Promise<void>): Reader {
    const { db, settings, inbox, tables } = this.#parts
    this.reader = new Reader({
      db,
      settings,
      inbox,
      store: this.#store,
      vehicles: this.rows,
      tables,
      partitions,
      room,
      beside,
    })
    return this.reader
  }

  readonly placeOf = (id: string): Place | undefined => this.reader?.placeOf(id)
}
