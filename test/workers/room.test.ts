import { expect, test } from 'vitest'
import { createObjectInbox } from '../../adapters/inbox/durable-object/object-inbox.ts'
import { message as kept, reason } from '../../src/testing/kept-message.ts'
import { objectStorage } from './object-storage.ts'

test('a message refused for lack of space drops no settled message, and the used space stays known', async () => {
  const always = { forMs: 1e12, maxBytes: 1_000 }
  const inbox = createObjectInbox(objectStorage(), {
    ...{ maxBytes: 1_000, pendingMessages: 100, pendingBytes: 1_000, settled: always, dead: always, inOrder: true },
  })
  await inbox.open()
  await inbox.put([kept(1, 300), kept(2, 300), kept(3, 300)])
  await inbox.deadLetter(kept(1).id, reason)
  await inbox.settle(kept(2).id)
  const settled = async (): Promise<readonly string[]> => (await inbox.settled({ limit: 10 })).map(({ id }) => id)
  // It would not fit even without any settled message.
  for (let n = 0; n < 3; n += 1) await expect(inbox.put([kept(4, 500)])).rejects.toMatchObject({ code: 'inbox_full' })
  expect(await settled()).toEqual([kept(2).id])
  await inbox.put([kept(5, 200)])
  expect(await settled()).toEqual([])
  expect(inbox.usage()).toEqual({ messages: 2, bytes: 500 })
})
