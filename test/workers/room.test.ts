import { expect, test } from 'vitest'
import { objectInbox } from './object-inbox.ts'
import { message as kept } from '../../src/testing/kept-message.ts'
import { objectStorage } from './object-storage.ts'

test('an object counts what it found as handed out once, and writes each claim of it before the message is handed out', async () => {
  const steps: string[] = []
  const storage = objectStorage()
  const noting = { ...storage, sync: async () => void steps.push('written') }
  const create = (): ReturnType<typeof objectInbox> =>
    objectInbox(noting, {
      maxBytes: 1e6,
      pendingMessages: 100,
      pendingBytes: 1e6,
      dead: { forMs: 1e12, maxBytes: 1_000 },
    })
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
    await next.settle(kept(1).id, { as: 'later', next: { attempts: 1, notBefore: 0, deliveries: 1 + deliveries } })
    expect(steps.splice(0)).toEqual(deliveries === 1 ? [] : ['written'])
    await next.settle(kept(1).id, { as: 'later', next: { attempts: 0, notBefore: 0, deliveries: 2 } })
  }
})
