import { createObjectInbox } from '../../../adapters/inbox/durable-object/object-inbox.ts'
import type { ObjectState, ObjectStorage } from '../../../adapters/inbox/durable-object.ts'
import type { Inbox, InboxSettings } from '../../../src/index.ts'
import { inboxConformance } from '../../../src/testing.ts'

/** What a check came to: nothing, or why it failed. */
export type Outcome = readonly [name: string, failure: string | undefined]

function inboxOn(storage: ObjectStorage, { pendingMessages = 1_000, pendingBytes = 1_000_000 }: InboxSettings): Inbox {
  return createObjectInbox(storage, {
    ...{ inOrder: true, maxBytes: 1_000_000, settledMs: 0, deadMs: 60_000, deadLetters: 100 },
    ...{ pendingMessages, pendingBytes },
  })
}

/** An object that puts its own inbox to the test. */
export class FleethookInbox {
  readonly #storage: ObjectStorage

  constructor({ storage }: ObjectState) {
    this.#storage = storage
  }

  async fetch(): Promise<Response> {
    const storage = this.#storage
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
