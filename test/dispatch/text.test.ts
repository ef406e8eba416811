import { join } from 'node:path'
import { createReceiver, memoryInbox, Retry, vehicles } from 'fleethook'
import { branch } from 'fleethook/branch'
import type { InboxFactory } from 'fleethook/extend'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { becomes } from 'fleethook/when'
import { afterEach, describe, expect, test } from 'vitest'
import { soon } from '../branch/soon.ts'
import { newFolder } from '../folder.ts'
import { silent } from '../vehicles/scene.ts'
import { oddTexts } from './odd-texts.ts'

const stops: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const stop of stops.splice(0).toReversed()) await stop()
})

function receiverWith(inbox: InboxFactory) {
  const receiver = createReceiver({
    ...{ secret: false, log: silent, inbox, parts: [vehicles({ fields: ['Gear'] })] },
    retry: { attempts: 2, minMs: 1 },
  })
  stops.push(() => receiver.drain({ handlerGraceMs: 0 }))
  return receiver
}

const post = (receiver: ReturnType<typeof receiverWith>, body: string) =>
  receiver.accept({ authorization: undefined, body })

const inboxes: readonly (readonly [name: string, () => InboxFactory])[] = [
  ['in memory', () => memoryInbox()],
  ['in a file', () => sqliteInbox({ path: join(newFolder('texts'), 'inbox.db') })],
]

describe.each(inboxes)('%s', (_name, inbox) => {
  test.each<[string, (texts: readonly string[]) => string]>([
    ['one after another', (texts) => texts.join('\n')],
    ['with nothing between them', (texts) => texts.join('')],
    ['in a list', (texts) => ` [ ${texts.join(' , ')} ] `],
  ])('handlers get the text of each message byte for byte as it came, %s', async (_how, body) => {
    const receiver = receiverWith(inbox())
    const alone: string[] = []
    const together: string[] = []
    receiver.on('*', (_event, { text }) => void alone.push(text))
    receiver.batch('*', { size: 100, withinMs: 1 }, (events, { texts }) => {
      expect(texts).toHaveLength(events.length)
      together.push(...texts)
    })
    expect(await post(receiver, body(oddTexts))).toMatchObject({ status: 200 })
    await soon(() => expect(together).toHaveLength(oddTexts.length))
    expect(alone.toSorted()).toEqual(oddTexts.toSorted())
    expect(together.toSorted()).toEqual(oddTexts.toSorted())
  })

  test('a branch, an edge, a second attempt, a dead letter and its replay have the same text', async () => {
    const receiver = receiverWith(inbox())
    const [text = ''] = oddTexts
    const seen: [who: string, text: string][] = []
    const crm = branch(receiver, { name: 'crm' }).on('*', (_event, context) => void seen.push(['branch', context.text]))
    receiver.when(becomes('Gear', 'D'), (_happening, context) => void seen.push(['edge', context.text]))
    let isDown = true
    receiver.on('data', (_event, context) => {
      seen.push([`attempt ${context.delivery.attempt}`, context.text])
      if (isDown && context.text !== parked) throw new Error('no')
    })
    const parked = '{"vin":"A","createdAt":"2024-02-24T04:58:43Z","data":{"Gear":"P"}}'
    await post(receiver, parked)
    await post(receiver, text)
    await soon(() => expect(receiver.stats().deadLettered).toBe(1))
    const [letter] = await Array.fromAsync(receiver.deadLetters.list())
    expect(letter?.text).toBe(text)
    expect((await receiver.messages.get(letter?.id ?? ''))?.text).toBe(text)
    await soon(() => expect(crm.stats().handled).toBe(2))
    isDown = false
    await receiver.deadLetters.replay(letter?.id ?? '')
    await soon(() => expect(receiver.stats().handled).toBe(2))
    // The replay is the receiver's.
    expect(seen.filter(([who]) => who === 'branch')).toHaveLength(2)
    const after = seen.filter(([, came]) => came !== parked)
    expect(new Set(after.map(([, came]) => came))).toEqual(new Set([text]))
    expect(new Set(after.map(([who]) => who))).toEqual(new Set(['branch', 'edge', 'attempt 1', 'attempt 2']))
  })
})

test('a handler that runs late still has the text', async () => {
  const receiver = receiverWith(memoryInbox())
  const [text = ''] = oddTexts
  const texts: string[] = []
  receiver.on('*', async (_event, context) => {
    if (context.delivery.attempt > 1) return
    setTimeout(() => texts.push(context.text))
    throw new Retry(0)
  })
  await post(receiver, text)
  await soon(() => expect(texts).toEqual([text]))
})

test('a process that starts again has the texts that the one before was sent', async () => {
  const path = join(newFolder('texts'), 'inbox.db')
  const first = receiverWith(sqliteInbox({ path }))
  first.on('*', () => Promise.reject(new Retry(60_000)))
  await post(first, oddTexts.join(''))
  await first.drain({ handlerGraceMs: 0 })
  const second = receiverWith(sqliteInbox({ path }))
  await second.open()
  const texts = (await Array.fromAsync(second.messages.list())).map(({ text }) => text)
  expect(texts.filter((text) => oddTexts.includes(text)).toSorted()).toEqual(oddTexts.toSorted())
})
