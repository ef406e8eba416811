import { EventEmitter } from 'node:events'
import pg from 'pg'
import { createReceiver } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { createOnce } from 'fleethook/once'
import { expect, test } from 'vitest'

test('many handlers and receivers with one pool listen once to it and to each of its connections', () => {
  const pool = new pg.Pool()
  for (let count = 0; count < 20; count += 1) {
    createOnce({ pool })
    // As a function does that a timer calls.
    createReceiver({ secret: false, inbox: postgresInbox({ db: pool }) })
  }
  const connection = new EventEmitter()
  pool.emit('acquire', connection)
  for (const emitter of [pool, connection])
    for (const event of ['error', 'notice']) expect(emitter.listenerCount(event)).toBe(1)
  for (const event of ['connect', 'acquire']) expect(pool.listenerCount(event)).toBe(1)
})
