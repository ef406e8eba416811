import { DatabaseSync } from 'node:sqlite'
import type { ObjectStorage } from 'fleethook/inbox/durable-object'
import { expect, test } from 'vitest'
import { createObjectInbox } from '../../adapters/inbox/durable-object/object-inbox.ts'
import { message as kept, reason } from '../../src/testing/kept-message.ts'

/** The storage of an object, as far as it matters here. */
function storage(): ObjectStorage {
  const db = new DatabaseSync(':memory:')
  return {
    sql: {
      exec: (query, ...bindings) => {
        const rows = db.prepare(query).all(...bindings) as Record<string, string | number | null>[]
        return { toArray: () => rows }
      },
    },
    transactionSync(change) {
      db.exec('BEGIN')
      try {
        const result = change()
        db.exec('COMMIT')
        return result
      } catch (error) {
        db.exec('ROLLBACK')
        throw error
      }
    },
    setAlarm: async () => {},
  }
}

test('what is refused for want of room drops no settled message, and the room is still known', async () => {
  const always = { forMs: 1e12, maxBytes: 1_000 }
  const inbox = createObjectInbox(storage(), {
    ...{ maxBytes: 1_000, pendingMessages: 100, pendingBytes: 1_000, settled: always, dead: always, inOrder: true },
  })
  await inbox.open()
  await inbox.put([kept(1, 300), kept(2, 300), kept(3, 300)])
  await inbox.deadLetter(kept(1).id, reason)
  await inbox.settle(kept(2).id)
  const settled = async (): Promise<readonly string[]> => (await inbox.settled({ limit: 10 })).map(({ id }) => id)
  // It would not fit if there were no settled message at all.
  for (let n = 0; n < 3; n += 1) await expect(inbox.put([kept(4, 500)])).rejects.toMatchObject({ code: 'inbox_full' })
  expect(await settled()).toEqual([kept(2).id])
  await inbox.put([kept(5, 200)])
  expect(await settled()).toEqual([])
  expect(inbox.usage()).toEqual({ messages: 2, bytes: 500 })
})
