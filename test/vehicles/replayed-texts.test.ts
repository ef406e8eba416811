import { createReceiver, vehicles } from 'fleethook'
import { vehicle } from 'fleethook/testing'
import { alertEnds } from 'fleethook/when'
import { expect, test } from 'vitest'
import { silent } from './scene.ts'

test('the replay of a dead letter gives the handler what the first run got: texts of the wire that look like dates stay texts', async () => {
  const got: unknown[] = []
  let isBroken = true
  const receiver = createReceiver({
    secret: false,
    log: silent,
    retry: { attempts: 1 },
    parts: [vehicles({ fields: ['Gear'] })],
  })
  receiver.when(alertEnds(), ({ change }) => {
    got.push(change)
    if (isBroken) throw new Error('no')
  })
  const [startedAt, endedAt] = ['2026-11-21T09:00:00Z', '2026-11-21T09:30:00Z']
  await vehicle(receiver, 'A').alerts([{ name: 'Low', startedAt: '2026-11-21T09:00:00Z' }])
  await vehicle(receiver, 'A').alerts([{ name: 'Low', startedAt, endedAt }])
  await expect.poll(() => got.length).toBe(1)
  await expect.poll(() => receiver.stats().deadLettered).toBe(1)
  isBroken = false
  await receiver.deadLetters.replay({})
  await expect.poll(() => got.length).toBe(2)
  expect(got[1]).toEqual(got[0])
  expect(got[1]).toMatchObject({ at: expect.any(Date), alerts: [{ startedAt, endedAt }] })
})
