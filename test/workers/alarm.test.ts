import { createReceiver } from 'fleethook'
import { durableObjectInbox, inboxObject } from 'fleethook/inbox/durable-object'
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
