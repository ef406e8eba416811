/* Vehicles whose messages fail, with more of them waiting than a process holds. */
import { createReceiver, type Receiver } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { expect, test } from 'vitest'
import { quiet } from './quiet.ts'
import { post, sceneOfFile, vinOf } from './scene.ts'

const scene = sceneOfFile()

interface Fleet {
  readonly receiver: Receiver
  readonly handled: Map<string, number[]>
}

const failing = Array.from({ length: 6 }, (_, at) => at)
const healthy = Array.from({ length: 10 }, (_, at) => at + 100)

/** A process that holds few messages, and whose handler fails for some vehicles. */
async function start(
  schema: string,
  isBroken: () => boolean,
  limits: object,
  handled: Fleet['handled'],
): Promise<Fleet> {
  const receiver = createReceiver({
    secret: false,
    inbox: postgresInbox({ db: scene.newPool(), schema, leaseMs: 2_000 }),
    log: quiet,
    limits,
    retry: { minMs: 200, maxMs: 2_000 },
  }).on('data', ({ vin, data: { Odometer } }) => {
    if (isBroken() && failing.some((n) => vin === vinOf(n))) throw new Error('no')
    handled.set(vin, [...(handled.get(vin) ?? []), Number(Odometer)])
  })
  await receiver.open()
  return { receiver, handled }
}

test.each([
  ['messages', { pendingMessages: 20 }],
  // A message has about a hundred bytes.
  ['bytes', { pendingBytes: 2_000 }],
])(
  'more %s of failing vehicles than a process holds stop no other vehicle, also after a restart, and keep their order',
  async (name, limits) => {
    const schema = `resting_${name}`
    await scene.prepare(schema)
    let isBroken = true
    const handled: Fleet['handled'] = new Map()
    const first = await start(schema, () => isBroken, limits, handled)
    for (let number = 1; number <= 30; number += 1)
      for (const vehicle of failing) expect(await post(first.receiver, vehicle, number)).toBe(200)
    for (let number = 1; number <= 5; number += 1)
      for (const vehicle of healthy) expect(await post(first.receiver, vehicle, number)).toBe(200)
    const isFlowing = (numbers: readonly number[]) => () =>
      healthy.map((n) => handled.get(vinOf(n))).every((of) => String(of) === String(numbers))
    await expect.poll(isFlowing([1, 2, 3, 4, 5])).toBe(true)
    await first.receiver.drain()

    // Another process takes over all of it.
    const second = await start(schema, () => isBroken, limits, handled)
    for (const vehicle of [...failing, ...healthy])
      expect(await post(second.receiver, vehicle, vehicle < 100 ? 31 : 6)).toBe(200)
    await expect.poll(isFlowing([1, 2, 3, 4, 5, 6])).toBe(true)
    expect(failing.map((n) => handled.get(vinOf(n)))).toEqual(failing.map(() => undefined))

    isBroken = false
    const all = Array.from({ length: 31 }, (_, at) => at + 1)
    await expect.poll(() => failing.map((n) => handled.get(vinOf(n))?.length)).toEqual(failing.map(() => 31))
    expect(failing.map((n) => handled.get(vinOf(n)))).toEqual(failing.map(() => all))
    await second.receiver.drain()
    expect(await scene.count(`${schema}.waiting`)).toBe(0)
  },
)
