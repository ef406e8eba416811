import { createReceiver, memoryInbox } from 'fleethook'
import { serve } from 'fleethook/node'
import { describe, expect, test } from 'vitest'
import { turn } from '../dispatch/fake-clock.ts'
import { data, gates, scene } from '../dispatch/scene.ts'
import { postingThread } from './posting-thread.ts'

describe('with an inbox in memory', () => {
  test("the 2xx is sent on receipt: ack is 'received'", async () => {
    const { receiver, post } = scene()
    const gate = gates()
    receiver.on('data', () => gate.wait('handler'))
    expect(receiver).toMatchObject({ ack: 'received', durability: 'memory' })
    expect(await post(data('A', 1))).toMatchObject({ status: 200 })
    await turn()
    expect(gate.waiting).toEqual(['handler'])
  })

  test("'stored' is refused at construction, by name", () => {
    expect(() => createReceiver({ secret: false, ack: 'stored' })).toThrow(
      expect.objectContaining({ code: 'ack_unavailable', message: expect.stringContaining("`ack` is 'stored'") }),
    )
    expect(() => createReceiver({ secret: false, ack: 'stored', inbox: memoryInbox() })).toThrow('ack')
  })

  test("'handled' waits until every handler has settled, retries included", async () => {
    const { receiver, post, clock } = scene({ ack: 'handled' })
    const steps: string[] = []
    receiver.on('data', ({ vin }, { delivery }) => {
      steps.push(`${vin} ${delivery.attempt}`)
      if (vin === 'A' && delivery.attempt < 3) throw new Error('no')
    })
    const answer = post([data('A', 1), data('B', 1)]).then(({ status }) => steps.push(`answered ${status}`))
    await clock.advance(1000)
    await answer
    expect(steps).toEqual(['A 1', 'B 1', 'A 2', 'A 3', 'answered 200'])
  })

  test("'handled' answers 200 when a message has become a dead letter: it is kept for a person", async () => {
    const { receiver, post } = scene({ ack: 'handled', retry: { attempts: 1 } })
    receiver.on('data', () => {
      throw new Error('no')
    })
    expect(await post(data('A', 1))).toMatchObject({ status: 200 })
    expect(receiver.stats()).toMatchObject({ deadLettered: 1 })
  })
})

describe('handlers start after the answer is on its way', () => {
  test('accept resolves before a handler has started', async () => {
    const { receiver, post } = scene()
    const steps: string[] = []
    receiver.on('data', () => void steps.push('handler'))
    await post(data('A', 1)).then(() => steps.push('answer'))
    await turn()
    expect(steps).toEqual(['answer', 'handler'])
  })

  test.each(Array.from({ length: 12 }, (_, n) => n))(
    'also when the message before it is finished %i microtasks after it came in',
    async (microtasks) => {
      const { receiver, post } = scene({ concurrency: 1 })
      const steps: string[] = []
      const gate = gates()
      receiver.on('data', async ({ data: { Odometer } }) => {
        steps.push(`handler ${String(Odometer)}`)
        if (Odometer === 1) await gate.wait('first')
      })
      await post(data('A', 1))
      await turn()
      const answered = post(data('A', 2)).then(() => steps.push('answer 2'))
      for (let n = 0; n < microtasks; n += 1) await Promise.resolve()
      gate.open('first')
      await answered
      await turn()
      expect(steps).toEqual(['handler 1', 'answer 2', 'handler 2'])
    },
  )

  test('over a real socket the client has its answer while its handler blocks the process', async () => {
    const client = postingThread()
    const blocked: string[] = []
    const receiver = createReceiver({ secret: false }).on('data', () => {
      blocked.push(client.waitForAnswer(10_000))
    })
    const server = await serve(receiver, { port: 0, hostname: '127.0.0.1', signals: false, announce: false })
    try {
      await client.post(server.port, JSON.stringify(data('A', 1)))
      await turn()
    } finally {
      await server.close()
    }
    expect(blocked).toEqual(['ok'])
  })

  test('a backlog of handlers that burn CPU leaves room for answers in between', async () => {
    const client = postingThread()
    let handled = 0
    let handledAtAnswer: number | undefined
    const receiver = createReceiver({ secret: false })
      .on('data', () => {
        burn(5)
        handled += 1
        if (handledAtAnswer === undefined && client.hasAnswer()) handledAtAnswer = handled
      })
      .on('state', () => {})
    const server = await serve(receiver, { port: 0, hostname: '127.0.0.1', signals: false, announce: false })
    try {
      for (let n = 0; n < 400; n += 1) await receiver.accept({ authorization: undefined, body: data('A', n) })
      await client.post(server.port, JSON.stringify({ vin: 'B', createdAt: '2024-02-24T04:58:44Z', state: 'online' }))
      await receiver.drain()
    } finally {
      await server.close()
    }
    expect(handled).toBe(400)
    expect(handledAtAnswer).toBeLessThan(400)
  })
})

function burn(ms: number): void {
  const end = performance.now() + ms
  while (performance.now() < end);
}
