import { expect, test } from 'vitest'
import { Spool } from '../../adapters/inbox/kafka/spool.ts'
import { type FakeClock, fakeClock } from '../../src/testing.ts'
import { id, message } from '../../src/testing/kept-message.ts'
import { disk, type Faults, storedInbox } from './stored-inbox.ts'

const silent = (): void => {}

interface Scene {
  readonly spool: Spool
  readonly clock: FakeClock
  /** The ids of each request to the topic. */
  readonly appended: (readonly string[])[]
}

async function setup(faults: Faults = {}): Promise<Scene> {
  const clock = fakeClock()
  const log = { debug: silent, info: silent, warn: silent, error: silent }
  const inbox = storedInbox(
    disk(),
    faults,
  )({
    ...{ pendingMessages: undefined, pendingBytes: undefined, overflow: 'refuse', clock, log },
    ...{ onConflated: silent, onFailure: silent, onCapacity: silent },
  })
  const appended: (readonly string[])[] = []
  const spool = new Spool({
    ...{ inbox, clock, log, partitionOf: () => 0, failed: silent },
    append: async (_, messages) => void appended.push(messages.map((one) => one.id)),
  })
  await spool.open()
  return { spool, clock, appended }
}

test('the spool forwards messages in order, and no more bytes at once than fit in memory', async () => {
  const { spool, clock, appended } = await setup()
  await spool.put(
    0,
    Array.from({ length: 5 }, (_, n) => message(n, 1_048_576)),
  )
  await clock.advance(100)
  expect(appended).toEqual([[id(0), id(1)], [id(2), id(3)], [id(4)]])
  expect(spool.size).toBe(0)
  expect(spool.has(0)).toBe(false)
})

test('the spool counts what is in its file, also when the file failed between two messages', async () => {
  let isBroken = true
  const { spool, clock, appended } = await setup({
    settle(one) {
      if (one !== id(1) || !isBroken) return
      isBroken = false
      throw new Error('The disk fails.')
    },
  })
  await spool.put(0, [message(0), message(1), message(2)])
  await clock.advance(1_000)
  expect(appended).toEqual([
    [id(0), id(1), id(2)],
    [id(1), id(2)],
  ])
  expect(spool.size).toBe(0)
})
