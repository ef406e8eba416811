import { describe, test } from 'vitest'
import { post } from '../runtimes/client.ts'
import { secret } from '../runtimes/targets.ts'
import { started } from './running.ts'

/** Posts messages in one body. Resolves to the status. */
async function postAll(url: string, messages: readonly (readonly [vin: string, number: number])[]): Promise<number> {
  const body = messages.map(([vin, BatteryLevel]) => ({
    data: { BatteryLevel },
    createdAt: '2026-05-01T00:00:00Z',
    vin,
  }))
  const headers = { authorization: secret }
  return (await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) })).status
}

const upTo = (count: number): readonly number[] => Array.from({ length: count }, (_, n) => n + 1)
describe.concurrent('messages are kept in Durable Objects, and handled there', () => {
  test('a body of many vehicles reaches the objects of all of them', async ({ expect }) => {
    await using running = await started({})
    const vins = upTo(40).map((n) => `V${n}`)
    expect(
      await postAll(
        running.url,
        vins.map((vin) => [vin, 1]),
      ),
    ).toBe(200)
    await expect.poll(() => running.entries.map(({ vin }) => vin).toSorted()).toEqual(vins.toSorted())
  })

  test('a message that fails every attempt becomes a dead letter, which the Worker lists and replays; later messages continue', async ({
    expect,
  }) => {
    await using running = await started({
      failing: { BAD: 3 },
      receiver: { retry: { attempts: 2, minMs: 1, maxMs: 1 } },
    })
    for (const vin of ['BAD', 'OK', 'BAD']) expect(await post(running.url, vin, 1)).toBe(200)
    const dead = async (): Promise<readonly { readonly id: string }[]> =>
      (await running.json('/dead')) as readonly { readonly id: string }[]
    await expect.poll(dead).toMatchObject([
      { event: { vin: 'BAD' }, error: 'Error: not yet: 2', attempts: 2 },
      { event: { vin: 'BAD' }, error: 'Error: not yet: 2', attempts: 2 },
    ])
    const [{ id } = { id: '' }] = await dead()
    expect(await running.json(`/replay?id=${id}`)).toBe(1)
    await expect.poll(() => running.entries).toMatchObject([{ vin: 'OK' }, { vin: 'BAD', replayed: true }])
    expect(await dead()).toHaveLength(1)
    expect(await running.json('/replay?id=018dd9c4-0000-7000-8000-000000000000')).toBe(0)
  })

  test('the Worker shows, discards and counts the dead letters of all objects, by vehicle', async ({ expect }) => {
    const vins = upTo(6).map((n) => `V${n}`)
    await using running = await started({
      failing: Object.fromEntries(vins.map((vin) => [vin, 9])),
      receiver: { retry: { attempts: 1 } },
    })
    for (const vin of vins) expect(await post(running.url, vin, 1)).toBe(200)
    const dead = (query = ''): Promise<unknown> => running.json(`/dead${query}`)
    await expect.poll(async () => Object(await dead()).length).toBe(6)
    expect(await dead('?limit=2')).toMatchObject([{ event: { vin: 'V1' } }, { event: { vin: 'V2' } }])
    const [{ id }] = (await dead('?vin=V3')) as [{ id: string }]
    expect(await running.json(`/find?id=${id}`)).toMatchObject({ id, event: { vin: 'V3' } })
    expect(await running.json('/discard?vin=V3&dryRun=1')).toBe(1)
    expect(await running.json('/discard?vin=V3')).toBe(1)
    expect(await running.json(`/find?id=${id}`)).toBe(null)
    expect(await running.json('/discard')).toBe(5)
    expect(await dead()).toEqual([])
  })

  test('what fails in all objects is told with its error, also after a restart, until the vehicle is erased', async ({
    expect,
  }) => {
    const vins = ['A', 'B', 'C']
    await using running = await started({
      failing: Object.fromEntries(vins.map((vin) => [vin, 99])),
      receiver: { retry: { minMs: 600_000, maxMs: 600_000 } },
    })
    for (const vin of vins) expect(await post(running.url, vin, 1)).toBe(200)
    const failing = (): Promise<unknown> => running.json('/failing')
    const handlers = [{ messages: 3, vehicles: 3, error: 'Error: not yet: 1' }]
    await expect.poll(failing).toMatchObject({ messages: 3, vehicles: 3, handlers })
    await running.again()
    await expect.poll(failing).toMatchObject({ messages: 3, handlers })
    const erased = { messages: 1, waiting: 1, deadLetters: 0 }
    expect(await running.json('/erase?vin=B&dryRun=1')).toEqual(erased)
    expect(await running.json('/erase?vin=B')).toEqual(erased)
    expect(await failing()).toMatchObject({ messages: 2 })
    expect(await running.json('/erase?vin=B')).toEqual({ messages: 0, waiting: 0, deadLetters: 0 })
  })

  test('an attempt, and the wait before the next one, outlive the process', async ({ expect }) => {
    await using running = await started({
      failing: { BAD: 3 },
      receiver: { retry: { attempts: 3, minMs: 4_000, maxMs: 4_000 } },
    })
    expect(await post(running.url, 'BAD', 1)).toBe(200)
    await running.target.line(/a handler for data failed/)
    await running.again()
    await running.target.line(/attempt\W+2\b/)
    await running.again()
    await expect.poll(() => running.entries).toMatchObject([{ vin: 'BAD', attempt: 3, redelivered: true }])
  })

  test('a message whose object ends each time it is handled becomes a dead letter, and those behind it are handled', async ({
    expect,
  }) => {
    await using running = await started({
      hanging: 'BAD',
      inbox: { shards: 1 },
    })
    for (const number of upTo(2)) expect(await post(running.url, 'BAD', number)).toBe(200)
    for (let time = 1; time <= 3; time++) {
      await expect.poll(() => running.entries.length).toBe(time)
      await running.again()
    }
    await expect.poll(() => running.numbersOf('BAD')).toEqual([1, 1, 1, 2])
    expect(await running.json('/dead')).toMatchObject([
      { event: { vin: 'BAD', data: { BatteryLevel: 1 } }, error: expect.stringContaining('3 processes ended') },
    ])
  })

  test('the batch handler gets the messages that its object has collected', async ({ expect }) => {
    await using running = await started({ batch: 5, inbox: { shards: 1 } })
    // In one body: a batch waits for a time, and a busy machine or a slow disk can take longer for each of them.
    expect(
      await postAll(
        running.url,
        upTo(12).map((number) => [`V${number % 2}`, number]),
      ),
    ).toBe(200)
    await expect.poll(() => running.entries.map(({ vin }) => vin)).toEqual(['5 at once', '5 at once', '2 at once'])
    expect(running.entries.map(({ number }) => number)).toEqual([15, 40, 23])
  })

  test('a full object refuses with 503, and emits the gap when it has capacity', async ({ expect }) => {
    const { promise: released, resolve: release } = Promise.withResolvers<void>()
    const settings = { receiver: { limits: { pendingMessages: 2 } }, inbox: { shards: 1 } }
    await using running = await started(settings, released)
    const statuses = []
    for (const number of upTo(4)) statuses.push(await post(running.url, 'V1', number))
    expect(statuses).toEqual([200, 200, 503, 503])
    expect((await fetch(`${running.url}/services/collector/health`)).status).toBe(503)
    expect(await running.json('/stats')).toMatchObject({ received: 2, refused: { inbox_full: 2 } })
    release()
    await expect.poll(() => running.numbersOf('V1')).toEqual([1, 2, 'gap'])
  })
})
