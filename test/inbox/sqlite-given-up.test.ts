import { DatabaseSync } from 'node:sqlite'
import { createReceiver, type Receiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { becomes } from 'fleethook/when'
import { describe, expect, test } from 'vitest'
import { onceIn } from '../once/in-sqlite.ts'
import { silent, vin } from '../vehicles/scene.ts'
import { createFiles } from './sqlite-files.ts'

const files = createFiles()

/** A receiver whose handlers of an edge write once into a database of their own, and a file that its processes share. */
function place() {
  const path = files.path()
  const db = new DatabaseSync(':memory:')
  const once = onceIn(db, db)
  const told: string[] = []
  const write =
    (name: string) =>
    ({ change }: { readonly change: { readonly from: unknown; readonly to: unknown } }): void =>
      void told.push(`${name} ${String(change.from)} ${String(change.to)}`)
  const handlers = { first: once('first', write('first')), second: once('second', write('second')) }
  const made = (): Receiver => {
    const parts = [vehicles({ fields: ['Gear'] })]
    return createReceiver({
      secret: false,
      log: silent,
      inbox: sqliteInbox({ path }),
      parts,
      retry: { minMs: 3_600_000 },
    })
  }
  /** As a process leaves the file that ended with the message in hand, after so many others. */
  const ended = (processes: number): void => {
    const file = new DatabaseSync(path)
    file.prepare('UPDATE pending SET deliveries = ?').run(processes)
    file.close()
  }
  return { made, handlers, told, ended }
}

async function gear(receiver: Receiver, to: string): Promise<void> {
  const body = { vin, createdAt: new Date().toISOString(), data: { Gear: to } }
  await receiver.accept({ authorization: undefined, body })
}

describe.each([3, 4, 7])(
  'a message that %d processes ended with, after handlers that write once had committed',
  (processes) => {
    const edge = becomes('Gear', 'D')
    const never = (): Promise<never> => new Promise(() => {})

    test('is settled when all of its handlers had', async () => {
      const { made, handlers, told, ended } = place()
      const one = made().when(edge, async (...given) => {
        await handlers.first(...given)
        await never()
      })
      await gear(one, 'P')
      await gear(one, 'D')
      await expect.poll(() => told).toEqual(['first P D'])
      await one.drain({ handlerGraceMs: 0 })
      ended(processes)
      const two = made().when(edge, handlers.first)
      await two.open()
      await expect.poll(() => two.stats()).toMatchObject({ handled: 1, deadLettered: 0, pending: { messages: 0 } })
      await gear(two, 'D')
      await expect.poll(() => two.stats().handled).toBe(2)
      expect(told).toEqual(['first P D'])
      await two.drain()
    })

    test('is a dead letter with its change when one had: no later message tells the edge again, and its replay does', async () => {
      const { made, handlers, told, ended } = place()
      const one = made().when(edge, handlers.first).when(edge, never)
      await gear(one, 'P')
      await gear(one, 'D')
      await expect.poll(() => told).toEqual(['first P D'])
      await one.drain({ handlerGraceMs: 0 })
      ended(processes)
      const two = made().when(edge, handlers.first).when(edge, handlers.second)
      await two.open()
      await expect.poll(() => two.stats().deadLettered).toBe(1)
      await gear(two, 'D')
      await expect.poll(() => two.stats().handled).toBe(1)
      expect(told).toEqual(['first P D'])
      expect(await two.deadLetters.replay({})).toBe(1)
      await expect.poll(() => told).toEqual(['first P D', 'second P D'])
      await two.drain()
    })
  },
)

test('a message that four processes ended with, and of which nothing was committed, leaves its vehicle uncertain', async () => {
  const { made, handlers, told, ended } = place()
  const one = made().when(becomes('Gear', 'D'), () => new Promise(() => {}))
  await gear(one, 'P')
  await gear(one, 'D')
  await expect.poll(() => one.stats().running).toBe(1)
  await one.drain({ handlerGraceMs: 0 })
  ended(4)
  const two = made().when(becomes('Gear', 'D'), handlers.first)
  await two.open()
  await expect.poll(() => two.stats().deadLettered).toBe(1)
  await gear(two, 'D')
  await expect.poll(() => told).toEqual(['first P D'])
  await two.drain()
})
