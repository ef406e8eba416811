import { createObjectInbox } from '../../../adapters/inbox/durable-object/object-inbox.ts'
import type { ObjectStorage, SqlValue } from '../../../adapters/inbox/durable-object.ts'
import type { Inbox, InboxSettings } from '../../../src/index.ts'
import { inboxConformance } from '../../../src/testing.ts'

/** What a check came to: nothing, or why it failed. */
export type Outcome = readonly [name: string, failure: string | undefined]

function inboxOn(storage: ObjectStorage, { pendingMessages = 1_000, pendingBytes = 1_000_000 }: InboxSettings): Inbox {
  return createObjectInbox(storage, {
    ...{ ...limits, inOrder: true },
    ...{ pendingMessages, pendingBytes },
  })
}

const counted = { id: '018dd9c4-3fd4-7000-8000-000000000000', lane: 'V', text: '{}', bytes: 2, receivedAt: 1 }

/** Rows that the platform would bill for a message, from `put` to `settle`, with another one kept beside it. */
async function rowsWritten(storage: CountingStorage): Promise<number> {
  let rows = 0
  const inbox = createObjectInbox(
    {
      setAlarm: (at) => storage.setAlarm(at),
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
    { inOrder: true, ...limits },
  )
  await inbox.open()
  rows = 0
  await inbox.put([{ ...counted, door: 'root', kind: 'wire' }])
  await inbox.claim(counted.id)
  await inbox.settle(counted.id)
  return rows
}

/** Storage that also tells what a statement has written. */
interface CountingStorage extends ObjectStorage {
  readonly sql: {
    exec(
      query: string,
      ...bindings: readonly (string | number | null)[]
    ): { toArray(): Record<string, SqlValue>[]; readonly rowsWritten: number }
  }
}

const limits = {
  ...{ maxBytes: 1_000_000, pendingMessages: 1_000, pendingBytes: 1_000_000 },
  ...{ settled: { forMs: 0, maxBytes: 0 }, dead: { forMs: 60_000, maxBytes: 100_000 } },
}

/** An object that puts its own inbox to the test. */
export class FleethookInbox {
  readonly #storage: CountingStorage

  constructor({ storage }: { readonly storage: CountingStorage }) {
    this.#storage = storage
  }

  async fetch(request: Request): Promise<Response> {
    const storage = this.#storage
    if (request.url.endsWith('/rows')) return Response.json(await rowsWritten(storage))
    const outcomes: Outcome[] = []
    const checks = inboxConformance({
      create(settings) {
        for (const table of ['messages', 'meta']) storage.sql.exec(`DROP TABLE IF EXISTS fleethook_${table}`)
        return inboxOn(storage, settings)
      },
      reopen: (_, settings) => inboxOn(storage, settings),
      tellsOfHoles: false,
    })
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
