import { objectInbox } from '../object-inbox.ts'
import type { ObjectStorage, SqlValue } from '../../../adapters/inbox/durable-object.ts'
import type { Inbox, InboxHost, StoredVehicle } from '../../../src/extend.ts'
import { inboxConformance, type InboxUnderTest } from '../../../src/testing.ts'
import { vehiclesConformance } from '../../conformance/vehicles-conformance.ts'
import { readersConformance } from '../../conformance/readers-conformance.ts'
import { lettersIn, usualSettings } from '../../../src/testing/kept-message.ts'

/** The result of a check: nothing, or why it failed. */
export type Outcome = readonly [name: string, failure: string | undefined]

function inboxOn(storage: ObjectStorage, settings: InboxHost): Inbox {
  const { pendingMessages = 1_000, pendingBytes = 1_000_000 } = settings.limits
  return objectInbox(storage, { ...limits, states: settings.states, pendingMessages, pendingBytes })
}

const counted = { id: '018dd9c4-3fd4-7000-8000-000000000000', lane: 'V', text: '{}', bytes: 2, receivedAt: 1 }

const state: StoredVehicle = { vin: 'V', seq: 1, seenMs: 1, bytes: 2, text: () => '{}' }

/** Rows that the platform would bill for a message, from `put` to `settle`, of the receiver and this many branches. */
async function rowsWritten(storage: CountingStorage, keepsVehicles: boolean, branches: number = 0): Promise<number> {
  let rows = 0
  const inbox = objectInbox(
    {
      setAlarm: (at) => storage.setAlarm(at),
      deleteAlarm: () => storage.deleteAlarm(),
      sync: () => storage.sync(),
      transactionSync: (change) => storage.transactionSync(change),
      sql: {
        exec(query, ...bindings) {
          const cursor = storage.sql.exec(query, ...bindings)
          const all = cursor.toArray()
          rows += cursor.rowsWritten
          return { toArray: () => all }
        },
      },
    },
    { keepsVehicles, ...limits },
  )
  const readers = Array.from({ length: branches }, (_, nth) => inbox.reader(`crm${nth}`, usualSettings))
  await inbox.open()
  inbox.states?.keep(state)
  rows = 0
  await inbox.put([{ ...counted, door: 'root', kind: 'wire' }])
  await inbox.claim(counted.id)
  await inbox.settle(counted.id, keepsVehicles ? { as: 'done', vehicle: state } : undefined)
  for (const reader of readers) {
    await reader.claim(counted.id)
    await reader.settle(counted.id)
  }
  return rows
}

/** Dead letters that are kept within the limit. Each has 100 bytes. */
async function retention(storage: ObjectStorage): Promise<object> {
  const text = 'x'.repeat(100)
  const idOf = (n: number): string => `018dd9c4-3fd${n}-7000-8000-000000000000`
  const dropped: (readonly number[])[] = []
  const inbox = objectInbox(storage, {
    ...{ maxBytes: 600, pendingMessages: 100, pendingBytes: 600 },
    dead: { forMs: 60_000, maxBytes: 200 },
    dropped: (times) => void dropped.push(times),
  })
  await inbox.open()
  const ids = async (list: Promise<readonly { readonly id: string }[]>): Promise<readonly string[]> =>
    (await list).map(({ id }) => id.slice(12, 13))
  const put = async (n: number): Promise<void> =>
    inbox.put([{ ...counted, id: idOf(n), text, bytes: 100, receivedAt: 1_000 * n, door: 'root', kind: 'wire' }])
  for (const n of [5, 6, 7]) {
    await put(n)
    await inbox.settle(idOf(n), { as: 'dead', reason: { error: 'no', attempts: 1, diedAt: n } })
  }
  const letters = await ids(lettersIn(inbox, { limit: 10 }))
  // Two are dead, so there is room for four.
  for (const n of [8, 9, 0, 2]) await put(n)
  const full = await put(1).then(
    () => 'kept',
    (error: { readonly code: string }) => error.code,
  )
  inbox.sweep(60_000 + 7)
  return { dropped, letters, full, swept: await ids(lettersIn(inbox, { limit: 10 })) }
}

/** Storage that also reports the rows that a statement wrote. */
interface CountingStorage extends ObjectStorage {
  readonly sql: {
    exec(
      query: string,
      ...bindings: readonly (string | number | null)[]
    ): { toArray(): Record<string, SqlValue>[]; readonly rowsWritten: number }
  }
}

const limits = {
  ...{ maxBytes: 8_000_000, pendingMessages: 1_000, pendingBytes: 1_000_000 },
  dead: { forMs: 60_000, maxBytes: 8_000_000 },
}

/** An object that tests its own inbox. */
export class FleethookInbox {
  readonly #storage: CountingStorage

  constructor({ storage }: { readonly storage: CountingStorage }) {
    this.#storage = storage
  }

  async fetch(request: Request): Promise<Response> {
    const storage = this.#storage
    if (request.url.endsWith('/retention')) return Response.json(await retention(storage))
    if (request.url.endsWith('/rows')) return Response.json(await rowsWritten(storage, false))
    if (request.url.endsWith('/rows-with-vehicles')) return Response.json(await rowsWritten(storage, true))
    if (request.url.endsWith('/rows-with-branch')) return Response.json(await rowsWritten(storage, false, 1))
    if (request.url.endsWith('/rows-with-branches')) return Response.json(await rowsWritten(storage, false, 7))
    const outcomes: Outcome[] = []
    const subject: InboxUnderTest = {
      create(settings) {
        for (const { name } of storage.sql
          .exec("SELECT name FROM sqlite_master WHERE name LIKE 'fleethook_%'")
          .toArray())
          storage.sql.exec(`DROP TABLE IF EXISTS "${String(name)}"`)
        return inboxOn(storage, settings)
      },
      reopen: (_, settings) => inboxOn(storage, settings),
      reportsGaps: false,
    }
    const checks = [...inboxConformance(subject), ...vehiclesConformance(subject), ...readersConformance(subject)]
    for (const { name, run } of checks) {
      try {
        await run()
        outcomes.push([name, undefined])
      } catch (error) {
        outcomes.push([name, String(error)])
      }
    }
    return Response.json(outcomes)
  }
}
