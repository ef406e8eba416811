import { describe, expect, test } from 'vitest'
import { apiKey, type Loose, sceneOf } from './scene.ts'

async function listen(
  { sandbox }: Pick<Awaited<ReturnType<typeof sceneOf>>, 'sandbox'>,
  path: string,
): Promise<{ readonly text: () => string; readonly end: Promise<void> }> {
  const request = new Request(`https://s.example.com${path}`, {
    headers: { authorization: `Bearer ${apiKey}` },
  })
  const { body } = await sandbox.fetch(request)
  let text = ''
  const decoder = new TextDecoder()
  const end = (async () => {
    for await (const chunk of body ?? []) text += decoder.decode(chunk, { stream: true })
  })()
  return { text: () => text, end }
}

/** The live items, which are those without `isCache`. */
const items = (text: string): readonly string[] =>
  text.split('\n\n').filter((item) => item.includes('data: ') && !item.includes('"isCache":true'))
const messages = (text: string): readonly Loose[] =>
  [...text.matchAll(/^data: (.*)$/gm)].map(([, json = '']) => JSON.parse(json))

test('`topics` and a field choose what is sent', async () => {
  const scene = await sceneOf()
  const { vin, ask, sandbox } = scene
  const topics = await listen(scene, `/sse/${vin}?topics=state,alerts`)
  const field = await listen(scene, `/sse/${vin}/Gear`)
  const other = await listen(scene, '/sse/0FLYEETV0T0000001')
  await ask('POST', '/sandbox/messages', { vin, data: { Gear: 'D', Soc: 5 } })
  await ask('POST', '/sandbox/messages', { vin, data: { Soc: 6 } })
  await ask('POST', '/sandbox/messages', { vin, state: 'online' })
  await sandbox.close()
  await Promise.all([topics.end, field.end, other.end])
  expect(items(topics.text()).map((item) => item.slice(0, 14))).toEqual(['data: {"state"'])
  expect(items(field.text())).toHaveLength(1)
  expect(field.text()).toContain('"data":{"Gear":"ShiftStateD"}')
  expect(items(other.text())).toEqual([])
})

test('`createdAt` always has a fraction of the second, on streams and at the webhook, in every format that has it', async () => {
  const scene = await sceneOf({ vehicles: 20 })
  const { ask, client, sandbox, posted } = scene
  const vins = (await client.products()).filter((one) => one.product_type === 'vehicle').map((one) => one.product_id)
  const streams = await Promise.all(vins.map((vin) => listen(scene, `/sse/${vin}`)))
  for (const vin of vins) await client.config(vin).replace({ fields: { Gear: { interval_seconds: 1 } } })
  for (const vin of vins) {
    await ask('POST', '/sandbox/messages', { vin, state: 'online', createdAt: '2026-05-01T00:00:00Z' })
    const error = { name: 'E', createdAt: '2026-05-01T00:00:00Z' }
    await ask('POST', '/sandbox/messages', { vin, errors: [error], createdAt: '2026-05-01T00:00:00+02:00' })
    await ask('POST', '/sandbox/messages', { vin, another: 1, createdAt: '2026-05-01T00:00:00Z' })
  }
  for (const format of ['service', 'vehicle_maker'] as const) {
    await client.webhook.set({ url: 'https://hook.example.com/', format, auth: 'a-secret' })
    for (const vin of vins) await ask('POST', `/sandbox/vehicles/${vin}/wake`)
    await ask('POST', '/sandbox/clock', { advance_seconds: 600 })
  }
  await sandbox.close()
  await Promise.all(streams.map(({ end }) => end))
  const all = [...posted.map(({ body }) => body), ...streams.map(({ text }) => text())].join('')
  const times = [...all.matchAll(/"createdAt":"([^"]*)"/g)].map(([, time]) => time)
  expect(times.length).toBeGreaterThan(500)
  expect(times.filter((time) => !/:\d\d\.\d+(Z|[+-]\d\d:\d\d)$/.test(time ?? ''))).toEqual([])
})

test('a comment line is sent every 15 seconds', async () => {
  const scene = await sceneOf()
  const { text, end } = await listen(scene, `/sse/${scene.vin}`)
  await scene.clock.advance(46_000)
  await scene.sandbox.close()
  await end
  expect(text().match(/^:$/gm)).toHaveLength(3)
})

test('a stream that is canceled leaves no timer', async () => {
  const scene = await sceneOf()
  const headers = { authorization: `Bearer ${apiKey}` }
  const { body } = await scene.sandbox.fetch(new Request(`https://s.example.com/sse/${scene.vin}`, { headers }))
  expect(scene.clock.timers()).toHaveLength(2)
  await body?.cancel()
  expect(scene.clock.timers()).toEqual([])
})

test('a stream ends when its vehicle is no longer shared', async () => {
  const scene = await sceneOf()
  const { end } = await listen(scene, `/sse/${scene.vin}`)
  await scene.ask('DELETE', `/sandbox/vehicles/${scene.vin}`)
  await end
})

describe('by default', () => {
  test('a stream begins with what the service knows, marked with isCache', async () => {
    const scene = await sceneOf()
    const { ask, vin, sandbox } = scene
    const createdAt = '2026-06-01T08:00:00.000Z'
    for (const message of [
      { state: 'driving' },
      { data: { Gear: 'D', Soc: 5 } },
      { data: { Soc: 6 } },
      { status: 'CONNECTED', networkInterface: 'cellular', connectionId: 'c1' },
      { alerts: [{ name: 'A', startedAt: createdAt, audiences: ['Customer'] }] },
      { errors: [{ name: 'E', createdAt, tags: {}, body: 'b' }] },
    ]) {
      await ask('POST', '/sandbox/messages', { vin, createdAt, ...message })
    }
    const { text, end } = await listen(scene, `/sse/${vin}`)
    await sandbox.close()
    await end
    expect(messages(text())).toEqual([
      { state: 'driving', createdAt, vin, isCache: true },
      { data: { Gear: 'ShiftStateD', Soc: 6 }, createdAt, vin, isCache: true },
      {
        ...{ status: 'CONNECTED', networkInterface: 'cellular', connectionId: 'c1' },
        ...{ createdAt, vin, isCache: true },
      },
      { alerts: [{ name: 'A', startedAt: createdAt, audiences: ['Customer'] }], createdAt, vin, isCache: true },
      { errors: [{ name: 'E', createdAt, tags: {}, body: 'b' }], createdAt, vin, isCache: true },
    ])
  })

  test('a stream ends on purpose after five minutes, and loses nothing', async () => {
    const scene = await sceneOf()
    const { ask, vin, clock } = scene
    const first = await listen(scene, `/sse/${vin}`)
    await clock.advance(299_999)
    expect(clock.timers().length).toBeGreaterThan(0)
    await ask('POST', '/sandbox/messages', { vin, data: { Soc: 5 } })
    await clock.advance(1)
    await first.end
    await ask('POST', '/sandbox/messages', { vin, data: { Soc: 6 } })
    const second = await listen(scene, `/sse/${vin}?topics=data`)
    await scene.sandbox.close()
    await second.end
    expect(messages(second.text())).toMatchObject([{ data: { Soc: 6 }, isCache: true }])
  })
})

test('with `streamMinutes` 0, a stream does not end', async () => {
  const scene = await sceneOf({ streamMinutes: 0 })
  let ended = false
  const { end } = await listen(scene, `/sse/${scene.vin}`)
  void end.then(() => (ended = true))
  // Without the option it ends after five minutes.
  await scene.clock.advance(3_600_000)
  expect(ended).toBe(false)
  await scene.sandbox.close()
  await end
})

test('a change of the config and the price of a command are on the stream, and `topics` can name every topic', async () => {
  const scene = await sceneOf()
  const { client, vin, sandbox } = scene
  const topics = [
    ...['data', 'state', 'vehicle_data', 'alerts', 'errors', 'connectivity', 'config', 'credits'],
    ...['live_status', 'site_info', 'tariff_content_v2', 'energy_totals'],
  ]
  const all = await listen(scene, `/sse/${vin}?topics=${topics.join(',')}`)
  const some = await listen(scene, `/sse/${vin}?topics=config,credits`)
  await client.config(vin).replace({ fields: { Gear: { interval_seconds: 5 } } })
  await client.command(vin, 'flash_lights')
  await sandbox.close()
  await Promise.all([all.end, some.end])
  expect(messages(some.text())).toMatchObject([
    { config: { fields: { Gear: { interval_seconds: 5 } } }, vin },
    { credits: { type: 'command', name: 'flash_lights', cost: 1, balance: 999 }, vin },
  ])
  expect(messages(all.text()).length).toBeGreaterThan(2)
})

test('the stream of an energy site begins with all its topics, and has them again as they change', async () => {
  const scene = await sceneOf()
  const { client, sandbox } = scene
  const { text, end } = await listen(scene, '/sse/12345')
  await sandbox.advance(300_000)
  await client.energySite('12345').command('backup', { backup_reserve_percent: 44 })
  await sandbox.close()
  await end
  const all = messages(text())
  const cached = all.filter(({ isCache }) => isCache === true)
  expect(cached).toMatchObject([
    { live_status: {}, site_id: '12345' },
    { site_info: { components: {} }, site_id: '12345' },
    { tariff_content_v2: { code: expect.any(String) }, site_id: '12345' },
    { totals: { total_solar_generation: expect.any(Number) }, id: '12345' },
  ])
  const live = all.filter(({ isCache }) => isCache !== true)
  expect(live.filter((message) => 'live_status' in message).length).toBeGreaterThanOrEqual(5)
  expect(live.filter((message) => 'totals' in message)).toHaveLength(1)
  expect(live.at(-1)).toMatchObject({ site_info: { backup_reserve_percent: 44 } })
})

test('HEAD opens no stream', async () => {
  const { sandbox, clock, vin } = await sceneOf()
  const headers = { authorization: `Bearer ${apiKey}` }
  const answer = await sandbox.fetch(new Request(`https://s.example.com/sse/${vin}`, { method: 'HEAD', headers }))
  expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'text/event-stream'])
  expect(clock.timers()).toEqual([])
})
