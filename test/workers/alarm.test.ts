import { createReceiver } from 'fleethook'
import { durableObjectInbox, type InboxObject, inboxObject } from 'fleethook/inbox/durable-object'
import { fakeClock } from 'fleethook/testing'
import { expect, test } from 'vitest'
import { message as kept } from '../../src/testing/kept-message.ts'
import { objectStorage } from './object-storage.ts'

test('the next message sets an alarm that could not be set before', async () => {
  const log = { debug() {}, info() {}, warn() {}, error() {} }
  const inbox = durableObjectInbox({
    objects: () => ({ idFromName: () => ({}), get: () => ({ fetch: Promise.reject }) }),
  })
  const receiver = createReceiver({ secret: false, inbox, log }).on('*', () => new Promise(() => {}))
  let asked = 0
  const object = new (inboxObject(receiver))(
    {
      storage: objectStorage(async () => {
        asked += 1
        if (asked === 1) throw new Error('The platform is moving it.')
      }),
    },
    {},
  )
  const put = async (n: number): Promise<unknown> => {
    const body = JSON.stringify({ question: 'put', about: [{ ...kept(n), text: kept(n).text }] })
    const answer = await object.fetch(new Request('https://object.invalid/', { method: 'POST', body }))
    return answer.json()
  }
  expect(await put(1)).toEqual({})
  expect(await put(2)).toEqual({})
  expect(asked).toBe(2)
  await put(3)
  expect(asked).toBe(2)
})

// The platform waits 2, 4, 8 seconds and so on before it tries an alarm again that was cut off.
test('an alarm sets the next one before its handlers run, so that an object that ends meanwhile goes on as soon, and leaves none when all are done', async () => {
  const log = { debug() {}, info() {}, warn() {}, error() {} }
  // An alarm ends when nothing was handed out for a moment, and on a busy machine a handler needs more than that to start.
  const clock = fakeClock()
  const finished = Promise.withResolvers<void>()
  let runs = 0
  const started = Promise.withResolvers<void>()
  const alarms: (number | undefined)[] = []
  const storage = objectStorage(
    async (atMs) => void alarms.push(atMs),
    async () => void alarms.push(undefined),
  )
  const create = (): InboxObject => {
    const inbox = durableObjectInbox({
      objects: () => ({ idFromName: () => ({}), get: () => ({ fetch: Promise.reject }) }),
    })
    const receiver = createReceiver({ secret: false, inbox, log, clock }).on('*', async () => {
      runs += 1
      // That of the object that ends.
      if (runs === 1) await new Promise(() => {})
      started.resolve()
      await finished.promise
    })
    return new (inboxObject(receiver))({ storage }, {})
  }
  const body = JSON.stringify({ question: 'put', about: [{ ...kept(1), text: kept(1).text }] })
  await create().fetch(new Request('https://object.invalid/', { method: 'POST', body }))
  expect(alarms).toHaveLength(1)
  let isOver = false
  const alarm = create()
    .alarm()
    .then(() => (isOver = true))
  await started.promise
  expect(alarms).toHaveLength(2)
  expect(alarms.at(-1)).toBeLessThanOrEqual(clock.now() + 5_000)
  finished.resolve()
  await expect.poll(() => clock.advance(50).then(() => isOver)).toBe(true)
  await alarm
  expect(alarms.slice(2)).toEqual([undefined])
})
