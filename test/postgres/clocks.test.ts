/* One clock decides: that of the server, whatever the clocks of receivers and handlers say. */
import { createReceiver, type Receiver, vehicles } from 'fleethook'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { is, silent, starts } from 'fleethook/when'
import { describe, expect, test } from 'vitest'
import { systemClock } from '../../src/base/clock.ts'
import { hasPostgres } from '../once/servers.ts'
import { quiet } from './quiet.ts'
import { sceneOfFile } from './scene.ts'

const minute = 60_000

describe.skipIf(!hasPostgres)('a machine whose clock is wrong', () => {
  const scene = sceneOfFile()

  /** `aheadMs`: by how much its clock is wrong. */
  function processOn(schema: string, role: 'receive' | 'handle' | 'both', aheadMs: number): Receiver {
    const inbox = postgresInbox({ db: scene.newPool(), schema, role, leaseMs: 3_000 })
    const clock = { ...systemClock, now: () => Date.now() + aheadMs }
    const parts = role === 'receive' ? [] : [vehicles({ fields: ['Gear'] })]
    return createReceiver({ secret: false, inbox, log: quiet, clock, parts })
  }

  test.each([
    ['behind', 'right', -5 * minute, 0],
    ['ahead', 'right', 5 * minute, 0],
    ['right', 'behind', 0, -5 * minute],
    ['right', 'ahead', 0, 5 * minute],
    ['behind', 'ahead', -5 * minute, 5 * minute],
  ])('receiver %s, handler %s: rules fire when they are due by the server', async (one, other, receives, handles) => {
    const schema = `clocks_${one}_${other}`
    await scene.prepare(schema)
    const fired: string[] = []
    const received: Date[] = []
    const handler = processOn(schema, 'handle', handles)
      .when(starts(is('Gear', 'P')).after({ seconds: 60 }), () => void fired.push('parked'))
      .when(silent({ seconds: 90 }), () => void fired.push('silent'))
      .when(
        starts(is('Gear', 'P')).after({ seconds: 1 }),
        ({ change }) => void fired.push(`soon, late: ${change.late}`),
      )
      .on('data', ({ receivedAt }) => void received.push(receivedAt))
    const receiver = processOn(schema, 'receive', receives)
    await handler.open()
    await receiver.open()
    const sentMs = Date.now()
    for (const gear of ['D', 'P']) {
      const body = { vin: 'V', createdAt: new Date().toISOString(), data: { Gear: gear } }
      expect((await receiver.accept({ authorization: undefined, body })).status).toBe(200)
    }
    await expect.poll(() => received.length).toBe(2)
    // The server has the clock of this machine.
    const postedMs = Date.now()
    for (const at of received) {
      expect(at.getTime()).toBeGreaterThan(sentMs - 5_000)
      expect(at.getTime()).toBeLessThan(postedMs + 5_000)
    }
    const dueMs = async (): Promise<number> => {
      const { rows } = await scene.pool.query<{ due: string | null }>(`SELECT due FROM ${schema}.vehicle`)
      return Number(rows[0]?.due ?? 0)
    }
    // The rule of one second is over, and the next one is that of a minute.
    await expect.poll(() => fired).toEqual(['soon, late: false'])
    await expect.poll(dueMs).toBeGreaterThan(sentMs + minute - 5_000)
    expect(await dueMs()).toBeLessThan(postedMs + minute + 5_000)
    expect(fired).toEqual(['soon, late: false'])
    await Promise.all([receiver.drain(), handler.drain()])
  })
})
