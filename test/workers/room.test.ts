import { expect, test } from 'vitest'
import { createObjectInbox } from '../../adapters/inbox/durable-object/object-inbox.ts'
import { message as kept, reason } from '../../src/testing/kept-message.ts'
import { objectStorage } from './object-storage.ts'

test('a message refused for lack of space drops no settled message, and the used space stays known', async () => {
  const always = { forMs: 1e12, maxBytes: 1_000 }
  const inbox = createObjectInbox(objectStorage(), {
    ...{ maxBytes: 1_000, pendingMessages: 100, pendingBytes: 1_000, settled: always, dead: always },
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

test('an object counts what it found as handed out once, and writes each claim of it before the message is handed out', async () => {
  const always = { forMs: 1e12, maxBytes: 1_000 }
  const steps: string[] = []
  const storage = objectStorage()
  const noting = { ...storage, sync: async () => void steps.push('written') }
  const create = (): ReturnType<typeof createObjectInbox> =>
    createObjectInbox(noting, { maxBytes: 1e6, pendingMessages: 100, pendingBytes: 1e6, settled: always, dead: always })
  const first = create()
  await first.open()
  await first.put([kept(1), kept(2)])
  await first.claim(kept(1).id)
  expect(steps).toEqual([])
  for (const deliveries of [1, 2]) {
    const next = create()
    for await (const [first] of (await next.open()).waiting)
      expect([first?.id, first?.crashes ?? 0]).toEqual([kept(1).id, deliveries === 1 ? 0 : 2])
    const claim = await next.claim(kept(1).id)
    expect([claim?.deliveries, ...steps.splice(0)]).toEqual([deliveries, 'written'])
    await next.put([kept(2 + deliveries)])
    expect(await next.claim(kept(2 + deliveries).id)).toMatchObject({ deliveries: 0 })
    expect(steps).toEqual([])
    // It ran alone, so others run only when its end is written.
    await next.reschedule(kept(1).id, { attempts: 1, notBefore: 0, deliveries: 1 + deliveries })
    expect(steps.splice(0)).toEqual(deliveries === 1 ? [] : ['written'])
    await next.reschedule(kept(1).id, { attempts: 0, notBefore: 0, deliveries: 2 })
  }
})
