import { EventEmitter } from 'node:events'
import pg from 'pg'
import { createOnce } from 'fleethook/once'
import { expect, test } from 'vitest'

test('many handlers with one pool listen once to it and to each of its connections', () => {
  const pool = new pg.Pool()
  for (let count = 0; count < 20; count += 1) createOnce({ pool })
  const connection = new EventEmitter()
  pool.emit('acquire', connection)
  for (const emitter of [pool, connection]) expect(emitter.listenerCount('error')).toBe(1)
  for (const event of ['connect', 'acquire']) expect(pool.listenerCount(event)).toBe(1)
})
