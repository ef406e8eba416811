import { describe, test } from 'vitest'
import { spawnTarget } from '../conformance/spawn.ts'
import { letIt, post, seen } from './client.ts'
import type { Settings } from './programs/app.ts'
import { appCommand, everywhere } from './targets.ts'

const held: Settings = { holdsStore: true, holdsHandlers: true }
const durable: Settings = { ...held, durability: 'disk' }

describe.concurrent.each(everywhere)('on %s a 2xx is sent', (runtime) => {
  test("with ack: 'received' and an inbox in memory when the message has arrived, before handlers are done", async ({
    expect,
  }) => {
    await using target = await spawnTarget(await appCommand(runtime, { ack: 'received', holdsHandlers: true }))
    expect(await post(target.url, 'V1')).toBe(200)
    expect((await seen(target.url)).steps).toEqual(['stored V1'])
    await letIt(target.url, 'handle')
    await expect.poll(() => seen(target.url)).toMatchObject({ steps: ['stored V1', 'handled V1'] })
  })

  test("with ack: 'received' and a durable inbox when the message has arrived, before it is stored", async ({
    expect,
  }) => {
    await using target = await spawnTarget(await appCommand(runtime, { ...durable, ack: 'received' }))
    expect(await post(target.url, 'V1')).toBe(200)
    expect((await seen(target.url)).steps).toEqual([])
    await letIt(target.url, 'store')
    await letIt(target.url, 'handle')
    await expect.poll(() => seen(target.url)).toMatchObject({ steps: ['stored V1', 'handled V1'] })
  })

  test("with ack: 'stored' and a durable inbox when the message is stored, before handlers are done", async ({
    expect,
  }) => {
    await using target = await spawnTarget(await appCommand(runtime, { ...durable, ack: 'stored' }))
    const answered = post(target.url, 'V1')
    expect(await Promise.race([answered, seen(target.url)])).toMatchObject({ steps: [] })
    await letIt(target.url, 'store')
    expect(await answered).toBe(200)
    expect((await seen(target.url)).steps).toEqual(['stored V1'])
    await letIt(target.url, 'handle')
    await expect.poll(() => seen(target.url)).toMatchObject({ steps: ['stored V1', 'handled V1'] })
  })

  test.for(['memory', 'disk'] as const)(
    "with ack: 'handled' and an inbox in/on %s when handlers are done",
    async (durability, { expect }) => {
      const command = await appCommand(runtime, { ack: 'handled', durability, holdsHandlers: true })
      await using target = await spawnTarget(command)
      const answered = post(target.url, 'V1')
      await expect.poll(() => seen(target.url)).toMatchObject({ steps: ['stored V1'] })
      expect(await Promise.race([answered, seen(target.url)])).toMatchObject({ steps: ['stored V1'] })
      await letIt(target.url, 'handle')
      expect(await answered).toBe(200)
      expect((await seen(target.url)).steps).toEqual(['stored V1', 'handled V1'])
    },
  )

  test("never with ack: 'stored' and an inbox in memory: it does not start, and says why", async ({ expect }) => {
    await expect(appCommand(runtime, { ack: 'stored' }).then(spawnTarget)).rejects.toThrow(
      "Option `ack` is 'stored' and the inbox keeps messages in memory only.",
    )
  })
})
