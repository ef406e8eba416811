import { DatabaseSync } from 'node:sqlite'
import { createReceiver } from 'fleethook'
import { durableObjectInbox, inboxObject, type ObjectStorage } from 'fleethook/inbox/durable-object'
import { expect, test } from 'vitest'
import { message as kept } from '../../src/testing/kept-message.ts'

/** The storage of an object, with alarms that the test sets. */
function storage(setAlarm: () => Promise<void>): ObjectStorage {
  const db = new DatabaseSync(':memory:')
  return {
    sql: {
      exec: (query, ...bindings) => {
        const rows = db.prepare(query).all(...bindings) as Record<string, string | number | null>[]
        return { toArray: () => rows }
      },
    },
    transactionSync: (change) => change(),
    setAlarm,
  }
}

test('an alarm that could not be set is set with the next message', async () => {
  const log = { debug() {}, info() {}, warn() {}, error() {} }
  const inbox = durableObjectInbox({
    objects: () => ({ idFromName: () => ({}), get: () => ({ fetch: Promise.reject }) }),
  })
  const receiver = createReceiver({ secret: false, inbox, log }).on('*', () => new Promise(() => {}))
  let asked = 0
  const object = new (inboxObject(receiver))(
    {
      storage: storage(async () => {
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
