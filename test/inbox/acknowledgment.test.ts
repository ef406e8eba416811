import { createReceiver, Discard, type Receiver } from 'fleethook'
import { serve } from 'fleethook/node'
import { Hono } from 'hono'
import { describe, expect, test } from 'vitest'
import { turn } from '../dispatch/fake-clock.ts'
import { data, gates, scene, state } from '../dispatch/scene.ts'
import { postingThread } from './posting-thread.ts'
import { disk, storedInbox } from './stored-inbox.ts'

describe('with an inbox in memory', () => {
  const failing = { ack: 'handled', retry: { attempts: 1 } } as const
  const fail = (): never => {
    throw new Error('no')
  }
  const json = JSON.stringify(data('A', 1))
  const collected = '{"source":"A","sourcetype":"vehicle:telemetry:data","time":1795255200,"event":{"Odometer":1}}'

  test.each<[string, (receiver: Receiver) => Promise<{ readonly status: number; readonly body: unknown }>]>([
    ['accept', (receiver) => receiver.accept({ authorization: undefined, body: json })],
    ['fetch', (receiver) => answerOf(receiver.fetch(new Request('http://host/', { method: 'POST', body: json })))],
    [
      'routes in an app',
      (receiver) => {
        const app = new Hono().route('/telemetry', receiver.routes())
        return answerOf(app.request('/telemetry', { method: 'POST', body: json }))
      },
    ],
    [
      "the collector's path",
      (receiver) =>
        answerOf(receiver.fetch(new Request('http://host/services/collector', { method: 'POST', body: collected }))),
    ],
  ])(
    "'handled' answers 500 by %s when a message is given up, because its dead letter dies with the process",
    async (_, send) => {
      const { receiver, lines } = scene(failing)
      const gaps: unknown[] = []
      receiver.on('data', fail).on('gap', ({ vin, reason, missed }) => void gaps.push({ vin, reason, missed }))
      const { status, body } = await send(receiver)
      expect(status).toBe(500)
      expect(JSON.parse(String(body))).toEqual({
        ...{ text: 'Internal server error', code: 8, error: 'not_handled' },
        hint: expect.stringContaining('A durable inbox'),
      })
      await turn()
      expect(gaps).toEqual([{ vin: 'A', reason: 'not_handled', missed: 1 }])
      expect(receiver.stats()).toMatchObject({ received: 1, deadLettered: 1, refused: { not_handled: 1 }, openGaps: 0 })
      expect(lines.filter((line) => line.includes('1 request refused: not_handled.'))).toHaveLength(1)
    },
  )

  test("'handled' answers 500 when one message of several is given up, and the gap names its vehicle alone", async () => {
    const { receiver, post } = scene(failing)
    const gaps: unknown[] = []
    receiver
      .on('data', ({ vin }) => void (vin === 'B' && fail()))
      .on('gap', ({ vin, missed }) => void gaps.push({ vin, missed }))
    expect(await post([data('A', 1), data('B', 2), data('B', 3)])).toMatchObject({ status: 500 })
    await turn()
    expect(gaps).toEqual([{ vin: 'B', missed: 2 }])
    expect(receiver.stats()).toMatchObject({ handled: 1, deadLettered: 2 })
  })

  test("'handled' answers 500 when the handler of a batch gives a message up, and 200 when a handler discards it", async () => {
    const { receiver, post } = scene(failing)
    receiver.batch('data', { size: 1, withinMs: 0 }, fail).on('state', () => {
      throw new Discard('not wanted')
    })
    expect(await post(data('A', 1))).toMatchObject({ status: 500 })
    expect(await post(state('A', 'online'))).toMatchObject({ status: 200 })
  })

  test("'handled' waits for an observer of dead letters, at most for the time limit of a handler", async () => {
    const gate = gates()
    const { receiver, post, clock } = scene({
      ...failing,
      timeoutMs: 5000,
      observe: { dead: ({ event }) => gate.wait('vin' in event ? event.vin : '') },
    })
    receiver.on('data', fail)
    const answers: string[] = []
    for (const vin of ['A', 'B']) void post(data(vin, 1)).then(({ status }) => answers.push(`${vin} ${status}`))
    await turn()
    expect({ waiting: gate.waiting, answers }).toEqual({ waiting: ['A', 'B'], answers: [] })
    gate.open('A')
    await turn()
    expect(answers).toEqual(['A 500'])
    await clock.advance(5000)
    expect(answers).toEqual(['A 500', 'B 500'])
  })
})

test("'handled' with a durable inbox answers 200 when a message has become a dead letter: it is kept for a person", async () => {
  const on = disk()
  const { receiver, post } = scene({ ack: 'handled', retry: { attempts: 1 }, inbox: storedInbox(on) })
  receiver.on('data', () => {
    throw new Error('no')
  })
  expect(await post(data('A', 1))).toMatchObject({ status: 200 })
  expect({ dead: on.dead.size, refused: receiver.stats().refused }).toEqual({ dead: 1, refused: {} })
})

async function answerOf(answered: Response | Promise<Response>): Promise<{ status: number; body: string }> {
  const answer = await answered
  return { status: answer.status, body: await answer.text() }
}

describe('handlers start after the answer is on its way', () => {
  test.each(Array.from({ length: 12 }, (_, n) => n))(
    'also when the message before it is finished %i microtasks after it came in',
    async (microtasks) => {
      const { receiver, post, send } = scene({ concurrency: 1 })
      const steps: string[] = []
      const gate = gates()
      receiver.on('data', async ({ data: { Odometer } }) => {
        steps.push(`handler ${String(Odometer)}`)
        if (Odometer === 1) await gate.wait('first')
      })
      await send(data('A', 1))
      const answered = post(data('A', 2)).then(() => steps.push('answer 2'))
      for (let n = 0; n < microtasks; n += 1) await Promise.resolve()
      gate.open('first')
      await answered
      await turn()
      expect(steps).toEqual(['handler 1', 'answer 2', 'handler 2'])
    },
  )

  test('a backlog of handlers that burn CPU leaves room for answers in between', async () => {
    const client = postingThread()
    let handled = 0
    let handledAtAnswer: number | undefined
    const receiver = createReceiver({ secret: false })
      .on('data', () => {
        if (handledAtAnswer === undefined) burn(5)
        handled += 1
        if (handledAtAnswer === undefined && client.hasAnswer()) handledAtAnswer = handled
      })
      .on('state', () => {})
    const server = await serve(receiver, { port: 0, hostname: '127.0.0.1', signals: false, announce: false })
    try {
      for (let n = 0; n < 2_000; n += 1) await receiver.accept({ authorization: undefined, body: data('A', n) })
      await client.post(server.port, JSON.stringify({ vin: 'B', createdAt: '2024-02-24T04:58:44Z', state: 'online' }))
      await receiver.drain()
    } finally {
      await server.close()
    }
    expect(handled).toBe(2_000)
    expect(handledAtAnswer).toBeLessThan(2_000)
  })
})

function burn(ms: number): void {
  const end = performance.now() + ms
  while (performance.now() < end);
}
