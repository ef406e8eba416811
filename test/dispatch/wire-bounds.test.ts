import { expect, test } from 'vitest'
import { turn } from './fake-clock.ts'
import { data, gates, scene, state } from './scene.ts'

test('a VIN that begins with an asterisk has a lane of its own', async () => {
  const { receiver, post, send } = scene()
  const gate = gates()
  receiver.on('*', (event) => gate.wait(String(event.vin)))
  for (const vin of ['*unknown', '*gap', '*malformed', '**unknown']) await post(state(vin, 'online'))
  await send({ state: 'online', createdAt: '2024-02-24T04:58:44Z' })
  expect(gate.waiting).toEqual(['*unknown', '*gap', '*malformed', '**unknown', 'undefined'])
})

test('a VIN that begins with an asterisk names its vehicle in a gap and selects its dead letters', async () => {
  const { receiver, post, clock } = scene({ limits: { pendingMessages: 1 }, retry: { attempts: 1 } })
  const gate = gates()
  const gaps: unknown[] = []
  receiver.on('gap', ({ vin }) => void gaps.push(vin)).on('state', () => gate.wait('state'))
  await post(state('*gap', 'online'))
  expect((await post(state('*gap', 'asleep'))).status).toBe(503)
  await turn()
  gate.fail('state', new Error('no'))
  await clock.advance(1)
  await turn()
  expect(gaps).toEqual(['*gap'])
  expect(await Array.fromAsync(receiver.deadLetters.list({ vin: '*gap' }))).toHaveLength(1)
})

test('drift keeps at most 1,000 rows with names of at most 100 characters, and counts every value', async () => {
  const { receiver, post } = scene()
  const long = 'N'.repeat(100_000)
  await post(data('A', 1, { Gear: { [`${long}Value`]: 5 }, BatteryLevel: { text: long } }))
  for (let i = 0; i < 1_200; i += 1) await post(data('A', 1, { Gear: { [`w${i}Value`]: 5 } }))
  const { drift, drifted } = receiver.stats()
  expect(drift).toHaveLength(1_000)
  expect(Math.max(...drift.map(({ field, seen }) => Math.max(field.length, seen.length)))).toBe(100)
  expect(drifted).toBe(1_202)
})
