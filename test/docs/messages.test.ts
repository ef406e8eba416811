import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { createReceiver, type FleetEvent } from '../../src/index.ts'

const page = readFileSync('docs/messages.md', 'utf8')
const commands = /^curl -H "Authorization: (.*)" "\$URL" -d '([^']+)'$/gm
const topics = ['data', 'state', 'vehicle_data', 'alerts', 'errors', 'connectivity']
// Only `data` tells the maker's format from the service's.
const examples = [
  ...topics.map((topic) => `service ${topic}`),
  ...['vehicle_maker data', 'service alerts', 'service errors'],
  ...topics.map((topic) => `event_collector ${topic}`),
]

test('each message to paste becomes the event of its topic, with everything that it carries', async () => {
  const secret = 'a-long-random-value'
  const handled: FleetEvent[] = []
  const receiver = createReceiver({ secret }).on('*', (event) => void handled.push(event))
  for (const [, authorization = '', body = ''] of page.matchAll(commands)) {
    const headers = { authorization: authorization.replace('$SECRET', secret) }
    const answer = await receiver.fetch(new Request('http://localhost/', { method: 'POST', headers, body }))
    expect({ status: answer.status, body: await answer.json() }).toEqual({
      status: 200,
      body: { text: 'Success', code: 0 },
    })
  }
  await receiver.drain()
  expect(handled.map(({ format, topic }) => `${format} ${topic}`)).toEqual(examples)
  for (const event of handled) {
    expect(event.vin).toBe('0FLEETV14T0000004')
    expect(event.createdAt).toMatch(/^2026-11-21T10:00:00\.983/)
    if (event.topic === 'data') expect([event.undecoded ?? {}, event.data.Gear]).toEqual([{}, 'D'])
  }
  // The parts beside the time, which the collector carries in milliseconds, are the same in every format.
  const payloads = (topic: string): unknown[] =>
    handled
      .filter((event) => event.topic === topic)
      .map(
        ({ raw: _raw, meta: _meta, format: _format, receivedAt: _received, createdAt: _created, at: _at, ...rest }) =>
          rest,
      )
  for (const topic of topics) expect(new Set(payloads(topic).map((each) => JSON.stringify(each))).size, topic).toBe(1)
})
