import type { Hono } from 'hono'
import { createReceiver, type Receiver } from 'fleethook'
import { branch } from 'fleethook/branch'
import { expect, onTestFinished, test } from 'vitest'
import { createOperatorApp } from '../../src/operator/app.ts'
import { mostReaders } from '../../src/operator/feed.ts'
import { data, logInto } from '../dispatch/scene.ts'

const lines: string[] = []

function receiverWithApp(): { readonly receiver: Receiver; readonly app: Hono } {
  lines.length = 0
  const receiver = createReceiver({ secret: false, log: logInto(lines) })
  onTestFinished(async () => void (await receiver.drain({ deadlineMs: 0 })))
  return { receiver, app: createOperatorApp(receiver) }
}

const post = (receiver: Receiver, n: number, more: object = {}) =>
  receiver.accept({ authorization: undefined, body: data('A', n, more) })

/** The events of a stream, as its reader takes them. */
async function reading(app: Hono, query = '') {
  const answer = await app.request(`/feed${query}`)
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  return {
    status: answer.status,
    answer,
    /** The next event with items. */
    async next(): Promise<{ readonly items: readonly object[]; readonly ended?: string }> {
      for (;;) {
        const at = text.indexOf('\n\n')
        const line = /^data: (.*)$/m.exec(text.slice(0, at))?.[1]
        if (at >= 0) text = text.slice(at + 2)
        if (line !== undefined) return JSON.parse(line)
        if (at >= 0) continue
        const part = await reader?.read()
        if (part === undefined || part.done) throw new Error('The stream has ended.')
        text += part.value
      }
    },
    cancel: async (): Promise<void> => {
      await reader?.cancel()
    },
  }
}

test('the feed has a limit of readers: one more gets 503 with a hint, until another one goes', async () => {
  const { app } = receiverWithApp()
  const readers = await Promise.all(Array.from({ length: mostReaders }, () => reading(app)))
  expect(readers.map(({ status }) => status)).toEqual(readers.map(() => 200))
  const refused = await app.request('/feed')
  expect(refused.status).toBe(503)
  expect(refused.headers.get('retry-after')).toBe('5')
  expect(await refused.json()).toMatchObject({ error: 'feed_full', text: expect.stringContaining('fleethook tail') })
  expect((await app.request('/stats')).status).toBe(200)
  await readers[0]?.cancel()
  await expect
    .poll(async () => {
      const again = await reading(app)
      await again.cancel()
      return again.status
    })
    .toBe(200)
  for (const reader of readers.slice(1)) await reader.cancel()
})

test('an item is made into JSON once, however many readers there are', async () => {
  const { receiver, app } = receiverWithApp()
  let reads = 0
  const readers = await Promise.all(Array.from({ length: 10 }, () => reading(app)))
  for (const reader of readers) await reader.next()
  receiver.observe({
    received: ([message]) => {
      if (message === undefined || !('data' in message.event)) return
      Object.defineProperty(message.event.data, 'Odometer', { enumerable: true, get: () => (reads += 1) })
    },
  })
  await post(receiver, 1)
  for (const reader of readers) expect((await reader.next()).items.length).toBeGreaterThan(0)
  expect(reads).toBeLessThan(10)
  for (const reader of readers) await reader.cancel()
})

test('a reader of the receiver or of a branch that takes nothing for ten seconds is dropped, and told so', async () => {
  await Promise.all(['/feed', '/branches/crm/feed'].map(dropsTheSlow))
})

async function dropsTheSlow(path: string): Promise<void> {
  const own: string[] = []
  const receiver = createReceiver({ secret: false, log: logInto(own) })
  onTestFinished(async () => void (await receiver.drain({ deadlineMs: 0 })))
  branch(receiver, { name: 'crm' })
  const { body } = await createOperatorApp(receiver).request(path)
  const reader = body?.getReader() ?? expect.fail('There is no stream.')
  await reader.read()
  // Nobody reads on, and no buffer of a socket takes what is sent.
  const sending = setInterval(() => void post(receiver, 1, { Note: 'x'.repeat(1_000) }), 20)
  onTestFinished(() => clearInterval(sending))
  await expect.poll(() => own.join('\n')).toContain('a reader of the feed was too slow')
  let text = ''
  const decoder = new TextDecoder()
  for (let part = await reader.read(); !part.done; part = await reader.read())
    text += decoder.decode(part.value, { stream: true })
  expect(text.trimEnd().endsWith('data: {"items":[],"ended":"slow"}')).toBe(true)
}
