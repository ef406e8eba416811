import { cpSync } from 'node:fs'
import { join } from 'node:path'
import { createReceiver, memoryInbox, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { fakeClock, vehicle } from 'fleethook/testing'
import { is, starts } from 'fleethook/when'
import { describe, expect, test } from 'vitest'
import { silent } from '../vehicles/scene.ts'
import { inDurableObject } from '../vehicles/places.ts'
import { portRows } from './port-rows.ts'
import { newFolder } from '../folder.ts'

const folder = newFolder('port')
let files = 0

describe('in a file', () => {
  portRows(() => {
    let path = join(folder, `${(files += 1)}`)
    return {
      next: () => sqliteInbox({ path: join(path, 'inbox.db') }),
      crash() {
        const copy = `${path}-copy`
        cpSync(path, copy, { recursive: true, filter: (name) => !name.endsWith('.sock') })
        path = copy
      },
    }
  })
})

describe('in a Durable Object', () => {
  portRows(() => ({ ...inDurableObject(), crash() {} }), 'elsewhere')
})

test.each([
  ['its timer is set', false],
  ['the message that begins it is in hand', true],
])(
  'what was up while the process stood still is not told when a message at the port says otherwise: %s',
  async (_, isInHand) => {
    const fake = fakeClock()
    const startMs = fake.now()
    let stoodTo = 0
    const now = (): number => Math.max(fake.now(), stoodTo)
    const told: string[] = []
    const held = Promise.withResolvers<void>()
    const receiver = createReceiver({
      ...{ secret: false, log: silent, inbox: memoryInbox(), clock: { ...fake, now, elapsedMs: now } },
      parts: [vehicles({ fields: ['Gear'] })],
    })
      .on('data', () => (isInHand ? held.promise : undefined))
      .when(starts(is('Gear', 'P')).after({ seconds: 60 }), ({ vin }) => void told.push(vin))
    const car = vehicle(receiver, '0FLEETV14T0000004')
    const send = async (gear: 'P' | 'D', second: number): Promise<void> => {
      void car.data({ Gear: gear }, { createdAt: new Date(startMs + second * 1_000).toISOString() })
      await fake.advance(10)
    }
    await send('D', 0)
    await send('P', 0)
    // All that was due runs at the end.
    stoodTo = startMs + 60_500
    await fake.advance(stoodTo - fake.now())
    held.resolve()
    await fake.advance(4_500)
    await send('D', 50)
    await fake.advance(100_000)
    expect(told).toEqual([])
    await send('P', 200)
    await fake.advance(100_000)
    expect(told).toHaveLength(1)
  },
)
