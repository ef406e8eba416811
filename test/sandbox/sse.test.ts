import { expect, test } from 'vitest'
import { apiKey, sceneOf } from './scene.ts'

async function listen(
  { sandbox }: Pick<Awaited<ReturnType<typeof sceneOf>>, 'sandbox'>,
  path: string,
  headers: Record<string, string> = {},
): Promise<{ readonly text: () => string; readonly end: Promise<void> }> {
  const request = new Request(`https://s.example.com${path}`, {
    headers: { authorization: `Bearer ${apiKey}`, ...headers },
  })
  const { body } = await sandbox.fetch(request)
  let text = ''
  const decoder = new TextDecoder()
  const end = (async () => {
    for await (const chunk of body ?? []) text += decoder.decode(chunk, { stream: true })
  })()
  return { text: () => text, end }
}

const items = (text: string): readonly string[] => text.split('\n\n').filter((item) => item.startsWith('event:'))

test('an item has the topic’s name, a number, and the message in the service’s format', async () => {
  const scene = await sceneOf()
  const { text, end } = await listen(scene, `/sse/${scene.vin}`)
  await scene.ask('POST', '/sandbox/messages', { vin: scene.vin, createdAt: '2026-06-01T08:00:00Z', state: 'online' })
  await scene.sandbox.close()
  await end
  const message = { state: 'online', createdAt: '2026-06-01T08:00:00Z', vin: scene.vin }
  expect(items(text())).toEqual([`event: state\nid: 1\ndata: ${JSON.stringify(message)}`])
})

test('`topics` and a field choose what is sent', async () => {
  const scene = await sceneOf()
  const { vin, ask, sandbox } = scene
  const topics = await listen(scene, `/sse/${vin}?topics=state,alerts`)
  const field = await listen(scene, `/sse/${vin}/Gear`)
  const other = await listen(scene, '/sse/0FLEETV19T0000001')
  await ask('POST', '/sandbox/messages', { vin, data: { Gear: 'D', Soc: 5 } })
  await ask('POST', '/sandbox/messages', { vin, data: { Soc: 6 } })
  await ask('POST', '/sandbox/messages', { vin, state: 'online' })
  await sandbox.close()
  await Promise.all([topics.end, field.end, other.end])
  expect(items(topics.text()).map((item) => item.split('\n')[0])).toEqual(['event: state'])
  expect(items(field.text())).toHaveLength(1)
  expect(field.text()).toContain('"data":{"Gear":"D"}')
  expect(items(other.text())).toEqual([])
})

test('Last-Event-ID brings the items after that one', async () => {
  const scene = await sceneOf()
  const { vin, ask, sandbox } = scene
  for (const state of ['online', 'driving', 'asleep']) await ask('POST', '/sandbox/messages', { vin, state })
  const { text, end } = await listen(scene, `/sse/${vin}`, { 'last-event-id': '1' })
  await sandbox.close()
  await end
  expect(items(text()).map((item) => /id: (\d+)/.exec(item)?.[1])).toEqual(['2', '3'])
})

test('a comment line is sent every 15 seconds', async () => {
  const scene = await sceneOf()
  const { text, end } = await listen(scene, `/sse/${scene.vin}`)
  await scene.clock.advance(46_000)
  await scene.sandbox.close()
  await end
  expect(text().match(/^:$/gm)).toHaveLength(4)
})

test('a stream that is canceled leaves no timer', async () => {
  const scene = await sceneOf()
  const headers = { authorization: `Bearer ${apiKey}` }
  const { body } = await scene.sandbox.fetch(new Request(`https://s.example.com/sse/${scene.vin}`, { headers }))
  expect(scene.clock.timers()).toHaveLength(1)
  await body?.cancel()
  expect(scene.clock.timers()).toEqual([])
})

test('a stream ends when its vehicle is no longer shared', async () => {
  const scene = await sceneOf()
  const { end } = await listen(scene, `/sse/${scene.vin}`)
  await scene.ask('DELETE', `/sandbox/vehicles/${scene.vin}`)
  await end
})
