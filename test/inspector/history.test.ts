import { join } from 'node:path'
import { createReceiver } from 'fleethook'
import type { MessageRecord, OperatorApi } from 'fleethook/extend'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { deliver, message } from 'fleethook/testing'
import { expect, onTestFinished, test } from 'vitest'
import { createOperatorApp } from '../../src/operator/app.ts'
import { Feed } from '../../src/operator/feed.ts'
import { Samples } from '../../src/operator/samples.ts'
import { newFolder } from '../folder.ts'

const log = { debug() {}, info() {}, warn() {}, error() {} }

interface Page {
  readonly messages: readonly {
    readonly id: string
    readonly state: string
    readonly event: { readonly topic: string }
  }[]
  readonly next: string | null
}

test('lists the messages of the inbox by outcome, and shows the history of one', async () => {
  const folder = newFolder('history')
  const receiver = createReceiver({
    ...{ secret: false, log, retry: { attempts: 2, minMs: 1 } },
    inbox: sqliteInbox({ path: join(folder, 'inbox.db') }),
  })
    .on('data', function save({ vin }) {
      if (vin === 'BAD') throw new RangeError('no')
    })
    .batch('data', { size: 1, withinMs: 0 }, function archive() {})
  onTestFinished(async () => void (await receiver.drain()))
  const feed = new Feed(receiver.observe)
  const app = createOperatorApp(receiver, { feed })
  const ask = async <Body>(path: string): Promise<Body> => (await app.request(path)).json() as Promise<Body>
  for (const vin of ['A', 'BAD', 'B']) {
    const { settled } = await deliver(receiver, message.data({ Odometer: 7 }, { vin }))
    await settled
  }
  const { settled } = await deliver(receiver, message.state('online', { vin: 'A' }))
  await settled
  await expect.poll(async () => (await ask<Page>('/messages?state=waiting')).messages.length).toBe(0)

  const settledOnes = await ask<Page>('/messages?state=settled&topic=data')
  expect(settledOnes.messages.map(({ state, event }) => [state, event])).toMatchObject([
    ['settled', { vin: 'B' }],
    ['settled', { vin: 'A' }],
  ])
  const [first] = (await ask<Page>('/messages?state=settled&limit=1')).messages
  expect(first?.event.topic).toBe('state')
  const second = await ask<Page>(`/messages?state=settled&limit=1&after=${first?.id}`)
  expect(second.messages).toMatchObject([{ event: { topic: 'data', vin: 'B' } }])
  const { messages: dead } = await ask<Page>('/messages?state=dead&vin=BAD')
  expect(dead).toHaveLength(1)
  expect(await ask(`/messages/${dead[0]?.id}`)).toMatchObject({
    ...{ state: 'dead', handlers: ['save', 'archive'], event: { raw: { vin: 'BAD' } } },
    death: { error: 'RangeError: no', attempts: 2 },
    happened: [
      { kind: 'failed', handler: 'save', attempt: 1, error: 'RangeError: no', nextAt: expect.any(String) },
      { kind: 'failed', handler: 'save', attempt: 2 },
      { kind: 'dead', attempts: 2 },
    ],
  })
  expect((await app.request('/messages?state=lost')).status).toBe(400)
})

test('shows a message, dead or not, as it came where its event is written in another way', async () => {
  const receiver = createReceiver({ secret: false, log, retry: { attempts: 1 } })
    .on('data', () => Promise.reject(new RangeError('no')))
    .on('state', () => new Promise(() => {}))
  onTestFinished(async () => void (await receiver.drain({ deadlineMs: 0 })))
  const text = '{"vin":"A", "createdAt":"2026-01-01T00:00:00Z", "data":{"id":9007199254740993}}'
  const plain = JSON.stringify({ vin: 'B', createdAt: '2026-01-01T00:00:00Z', state: 'online' })
  for (const body of [text, plain]) await receiver.accept({ authorization: undefined, body })
  await expect.poll(() => receiver.stats().deadLettered).toBe(1)
  const shownBy = async (payloads: boolean): Promise<unknown[]> => {
    const app = createOperatorApp(receiver, { payloads })
    const ask = async (path: string): Promise<{ readonly text?: string }> => (await app.request(path)).json() as never
    const ids = (await Array.fromAsync(receiver.messages.list())).map(({ id }) => id)
    const [dead] = await Array.fromAsync(receiver.deadLetters.list())
    return Promise.all(
      [`dead/${dead?.id}`, ...ids.map((id) => `messages/${id}`)].map(async (path) => (await ask(`/${path}`)).text),
    )
  }
  expect(await shownBy(true)).toEqual([text, undefined, text])
  expect(await shownBy(false)).toEqual([undefined, undefined, undefined])
})

test('a search reads a limited number of messages and says where to continue', async () => {
  const total = 25_000
  let listed = 0
  const idOf = (n: number): string => `00000000-0000-7000-8000-${String(n).padStart(12, '0')}`
  const at = (n: number): MessageRecord => ({
    id: idOf(n),
    text: '',
    bytes: 0,
    state: n === 7 ? 'dead' : 'settled',
    event: { topic: 'malformed', receivedAt: new Date(0), error: 'x', text: '', length: 0 },
  })
  const messages: OperatorApi['messages'] = {
    get: async () => undefined,
    async *list({ after } = {}) {
      for (let n = (after === undefined ? total : Number(after.slice(-6))) - 1; n >= 0; n -= 1) {
        listed += 1
        yield at(n)
      }
    },
  }
  const app = createOperatorApp({
    ...{ messages, replay: async () => 0 },
    deadLetters: { async *list() {}, get: async () => undefined, replay: async () => 0, discard: async () => 0 },
  })
  let after: string | undefined
  const found: string[] = []
  const reads: number[] = []
  do {
    listed = 0
    const query = new URLSearchParams({ state: 'dead', ...(after === undefined ? {} : { after }) })
    const page = (await (await app.request(`/messages?${query}`)).json()) as Page
    found.push(...page.messages.map(({ id }) => id))
    reads.push(listed)
    after = page.next ?? undefined
  } while (after !== undefined)
  expect([found, reads]).toEqual([[idOf(7)], [10_000, 10_000, 5_000]])
})

test('samples are taken every five seconds, kept for 15 minutes, and have times only while somebody reads', async () => {
  let nowMs = 1_000_000
  const receiver = createReceiver({
    secret: false,
    log,
    clock: { now: () => nowMs - 30, after: () => ({ cancel() {} }) },
  })
  const samples = new Samples(receiver.stats, receiver.observe, () => nowMs)
  const step = async (): Promise<void> => {
    await receiver.accept({ authorization: undefined, body: { vin: 'A', state: 'online' } })
    nowMs += Samples.stepMs
    samples.take()
    samples.take()
  }
  await step()
  const stop = samples.timeAnswers()
  await step()
  stop()
  await step()
  expect(samples.list().map(({ received, ack }) => [received, ack])).toEqual([
    [1, undefined],
    [2, { count: 1, p50: 30, p99: 30, max: 30 }],
    [3, undefined],
  ])
  for (let n = 0; n < 200; n += 1) {
    nowMs += Samples.stepMs
    samples.take()
  }
  expect(samples.list()).toHaveLength(180)
})
