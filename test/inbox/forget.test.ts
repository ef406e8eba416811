/* A customer is erased: nothing of the vehicle is left in what an inbox keeps. */
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createReceiver, memoryInbox, type Receiver, vehicles } from 'fleethook'
import { branch } from 'fleethook/branch'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import type { InboxFactory } from 'fleethook/extend'
import { operatorRoutes } from 'fleethook/operator'
import { becomes } from 'fleethook/when'
import { describe, expect, onTestFinished, test } from 'vitest'
import { command } from '../cli/command.ts'
import { newFolder } from '../folder.ts'

const gone = '0FLEETV14T0000GON'
const stays = '0FLEETV14T0000STY'
const log = { debug() {}, info() {}, warn() {}, error() {} }

function made(inbox: ReturnType<typeof memoryInbox>, minMs = 600_000): Receiver {
  const parts = [vehicles({ fields: ['Gear', 'Odometer', 'VehicleName'] })]
  const receiver: Receiver = createReceiver({ secret: false, inbox, log, parts, retry: { minMs, maxMs: 600_000 } })
  receiver
    .on('data', (event) => {
      if (event.data.VehicleName === 'dies') throw Object.assign(new Error(`no ${event.vin}`), { code: 'E_NO' })
      if (event.data.VehicleName === 'fails') throw new Error(`not yet ${event.vin}`)
    })
    .when(becomes('Gear', 'P').after({ minutes: 5 }), () => {})
  return receiver
}

const post = async (receiver: Receiver, vin: string, data: object): Promise<void> => {
  const body = { vin, createdAt: new Date().toISOString(), data }
  expect((await receiver.accept({ authorization: undefined, body })).status).toBe(200)
}

/** Handled messages, one as long as several pages, a gap, bodies that nobody can read, and one that fails for an hour. */
async function filled(receiver: Receiver): Promise<void> {
  for (const vin of [gone, stays]) {
    await post(receiver, vin, { Gear: 'D', Odometer: 1 })
    await post(receiver, vin, { Gear: 'P', VehicleName: `${vin} `.repeat(3_000) })
    await receiver.accept({ authorization: undefined, body: `{"vin":"${vin.toLowerCase()}","broken` })
    await receiver.accept({ authorization: undefined, body: { source: vin, what: 'is this' } })
  }
  await expect.poll(() => receiver.stats().pending.messages).toBe(0)
  for (const vin of [gone, stays])
    for (const n of [1, 2]) await post(receiver, vin, { VehicleName: 'fails', Odometer: n })
  await expect.poll(() => receiver.stats().failing?.messages).toBe(2)
}

describe('receiver.forget', () => {
  test('with an inbox that cannot erase, it rejects and ends no work: what runs and what waits is handled', async () => {
    const inbox: InboxFactory = (settings) => ({ ...memoryInbox()(settings), forget: undefined })
    const { promise: released, resolve: release } = Promise.withResolvers<void>()
    const handled: unknown[] = []
    const receiver = createReceiver({ secret: false, inbox, log }).on('data', async ({ data }) => {
      await released
      handled.push(data.Odometer)
    })
    for (const n of [1, 2]) await post(receiver, gone, { Odometer: n })
    await expect(receiver.forget(gone)).rejects.toMatchObject({ code: 'inbox_unsupported' })
    release()
    await receiver.drain()
    expect(handled).toEqual([1, 2])
    expect(receiver.stats()).toMatchObject({ handled: 2, forgotten: 0 })
  })

  test('leaves no byte of a vehicle in the file, its journal and the feed, and touches no other vehicle', async () => {
    const folder = newFolder('forget')
    const path = join(folder, 'inbox.db')
    const receiver = made(sqliteInbox({ path }))
    const app = operatorRoutes(receiver, { secret: 'operators' })
    const ask = async (path: string, body?: object): Promise<unknown> => {
      const init = body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }
      return (await app.request(path, { ...init, headers: { authorization: 'operators' } })).json()
    }
    /** What the feed has at its start. */
    const feed = async (): Promise<string> => {
      const answer = await app.request('/feed', { headers: { authorization: 'operators' } })
      for await (const text of (answer.body ?? new ReadableStream()).pipeThrough(new TextDecoderStream()))
        return text.toUpperCase()
      return ''
    }
    onTestFinished(async () => void (await receiver.drain()))
    await filled(receiver)
    const bytes = (): string =>
      readdirSync(folder)
        .filter((name) => !name.endsWith('.sock'))
        .map((name) => readFileSync(join(folder, name), 'latin1'))
        .join('')
        .toUpperCase()
    expect(bytes()).toContain(gone)
    const before = { messages: 6, waiting: 2, deadLetters: 0 }
    expect(await feed()).toContain(gone)
    expect(await receiver.forget(gone, { dryRun: true })).toEqual(before)
    expect(bytes()).toContain(gone)
    expect(await ask('/forget', { vin: gone })).toEqual(before)
    expect(bytes()).not.toContain(gone)
    expect(bytes()).toContain(stays)
    const about = [await Array.fromAsync(receiver.messages.list({ vin: gone })), await ask('/failing'), await feed()]
    expect(JSON.stringify(about).toUpperCase()).not.toContain(gone)
    expect(receiver.stats()).toMatchObject({ forgotten: 2, pending: { messages: 2 }, failing: { messages: 1 } })
    expect(await receiver.forget(stays, { dryRun: true })).toMatchObject({ messages: 6, waiting: 2 })
    const { received, handled, forgotten, pending, deadLettered, lost, duplicates } = receiver.stats()
    expect(received).toBe(handled + forgotten + pending.messages + deadLettered + lost + duplicates)
    // A message that comes later is a new vehicle.
    await post(receiver, gone, { Odometer: 9 })
    await expect.poll(() => receiver.stats().pending.messages).toBe(2)
  })

  test('aborts a handler that runs, and its message is neither settled nor tried again', async () => {
    const receiver = createReceiver({ secret: false, log })
    const reasons: unknown[] = []
    let runs = 0
    receiver.on('data', async (_, { signal }) => {
      runs += 1
      await new Promise((resolve) => {
        signal.addEventListener('abort', resolve)
      })
      reasons.push(Reflect.get(Object(signal.reason), 'code'))
      throw new Error('aborted')
    })
    await post(receiver, gone, { Odometer: 1 })
    await post(receiver, gone, { Odometer: 2 })
    await expect.poll(() => runs).toBe(1)
    expect(await receiver.forget(gone)).toEqual({ messages: 2, waiting: 2, deadLetters: 0 })
    await expect.poll(() => reasons).toEqual(['vehicle_forgotten'])
    expect(await receiver.drain()).toEqual({ handled: 0, left: 0, lost: 0 })
    expect(runs).toBe(1)
    expect(receiver.stats()).toMatchObject({ forgotten: 2, deadLettered: 0, pending: { messages: 0, bytes: 0 } })
  })

  test('takes dead letters from an inbox in memory', async () => {
    const receiver = createReceiver({ secret: false, log, inbox: memoryInbox(), retry: { attempts: 1 } })
    receiver.on('data', () => {
      throw new Error('no')
    })
    await post(receiver, gone, { Odometer: 1 })
    await post(receiver, stays, { Odometer: 1 })
    await expect.poll(() => receiver.stats().deadLettered).toBe(2)
    expect(await receiver.forget(gone)).toEqual({ messages: 1, waiting: 0, deadLetters: 1 })
    expect(await Array.fromAsync(receiver.deadLetters.list())).toMatchObject([{ event: { vin: stays } }])
  })
})

test('fleethook forget erases a vehicle from the file of a stopped receiver', { timeout: 180_000 }, async () => {
  const folder = newFolder('forget')
  const path = join(folder, 'inbox.db')
  const receiver = made(sqliteInbox({ path }))
  await filled(receiver)
  await receiver.drain()
  const forget = (...args: readonly string[]): ReturnType<typeof command> =>
    command(['forget', '--vin', gone, '--inbox', path, ...args])
  expect((await forget('--dry-run')).stdout).toBe(
    `The inbox has 6 messages of ${gone} (2 not handled yet, 0 dead letters).\n`,
  )
  expect(await forget()).toMatchObject({ status: 1, stdout: '' })
  expect(await forget('--yes')).toMatchObject({ status: 0, stderr: '' })
  for (const name of readdirSync(folder))
    expect(readFileSync(join(folder, name), 'latin1').toUpperCase()).not.toContain(gone)
  const again = made(sqliteInbox({ path }))
  await again.open()
  await expect.poll(() => again.stats().failing?.messages).toBe(1)
  // The gap of the stop is a message, too, for a moment.
  await expect.poll(() => again.stats().pending.messages).toBe(2)
  await again.drain()
})

test(
  'a vehicle is erased from a file that others moved into, and from the one that they come from',
  { timeout: 180_000 },
  async () => {
    const folder = newFolder('forget')
    const [first, second] = [join(folder, 'inbox-1.db'), join(folder, 'inbox-2.db')]
    const old = made(sqliteInbox({ path: first }))
    await filled(old)
    await old.drain()
    expect(await command(['move', first, second])).toMatchObject({ status: 0 })
    const receiver = made(sqliteInbox({ path: second }))
    await receiver.open()
    await expect.poll(() => receiver.stats().failing?.messages).toBe(2)
    expect(await receiver.forget(gone)).toMatchObject({ messages: 2, waiting: 2 })
    const forgotten = await command(['forget', '--vin', gone, '--inbox', first, '--yes'])
    expect(forgotten).toMatchObject({ status: 0, stderr: '' })
    for (const name of readdirSync(folder).filter((each) => !each.endsWith('.sock')))
      expect(readFileSync(join(folder, name), 'latin1').toUpperCase(), name).not.toContain(gone)
    await expect.poll(() => receiver.stats().pending.messages).toBe(2)
    await receiver.drain()
  },
)

test('forget names the files beside that it does not reach, and a branch has none', { timeout: 180_000 }, async () => {
  const folder = newFolder('forget')
  const inFolder = (name: string): string => join(folder, name)
  const aside = ['inbox-2.db', 'inbox.db.damaged-20260101T000000000Z', 'inbox.db.replaced-20260101T000000000Z']
  for (const name of [...aside, 'other.db', 'inbox.txt']) writeFileSync(inFolder(name), gone)
  const receiver = made(sqliteInbox({ path: inFolder('inbox.db') }))
  branch(receiver, { name: 'crm' })
  await receiver.open()
  const notErased = aside.map(inFolder)
  expect(await receiver.forget(gone, { dryRun: true })).toMatchObject({ notErased })
  expect(await receiver.forget(gone)).toEqual({ messages: 0, waiting: 0, deadLetters: 0, notErased })
  await receiver.drain()
  const forgotten = await command(['forget', '--vin', gone, '--inbox', inFolder('inbox.db'), '--yes'])
  expect(forgotten).toMatchObject({ status: 0, stderr: '' })
  for (const file of notErased) expect(forgotten.stdout).toContain(`\n  ${file}`)
  expect(forgotten.stdout).toContain('Not erased in 3 other files')
  for (const name of aside) rmSync(inFolder(name))
  expect((await command(['forget', '--vin', gone, '--inbox', inFolder('inbox.db'), '--yes'])).stdout).toBe(
    `Erased 0 messages and the state of ${gone}.\n`,
  )
})

test('fleethook failing and forget ask a running receiver by its inbox file', { timeout: 180_000 }, async () => {
  const folder = newFolder('forget')
  const path = join(folder, 'inbox.db')
  const receiver = made(sqliteInbox({ path }))
  onTestFinished(async () => void (await receiver.drain()))
  await filled(receiver)
  const failing = await command(['failing', '--inbox', path])
  expect(failing.stdout).toMatch(
    /^2 messages of 2 vehicles have failed for \d+\w+: the handler is forget\.test\.ts:\d+\.\n[^]*Error: not yet 0FLEET/,
  )
  const doctor = await command(['doctor', '--only', 'receiver', '--inbox', path])
  expect(doctor.stdout).toMatch(/receiver\.failing +2 messages of 2 vehicles have failed for /)
  expect(doctor.stdout).toContain('1 process runs handlers')
  expect(await command(['forget', '--vin', gone, '--inbox', path, '--yes'])).toMatchObject({ status: 0, stderr: '' })
  expect(receiver.stats()).toMatchObject({ forgotten: 2, failing: { messages: 1 } })
})
