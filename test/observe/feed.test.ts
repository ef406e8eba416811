import { expect, test } from 'vitest'
import { Feed, type FeedBatch } from '../../src/operator/feed.ts'
import { data, type Scene, scene } from '../dispatch/scene.ts'

/** The next batch of a reader. */
async function next(batches: AsyncGenerator<FeedBatch>): Promise<FeedBatch> {
  const { value } = await batches.next()
  if (value === undefined) throw new Error('the feed has ended')
  return value
}

const kinds = ({ items }: FeedBatch): string[] => items.map(({ kind }) => kind)

function watched(options: Parameters<typeof scene>[0] = {}): Scene & { readonly feed: Feed } {
  const all = scene(options)
  all.receiver.on('data', ({ vin }) => {
    if (vin === 'BAD') throw new Error('no')
  })
  return { ...all, feed: new Feed(all.receiver.observe) }
}

test('keeps errors from the start, and handled messages while somebody reads', async () => {
  const { feed, post, clock } = watched({ retry: { attempts: 1 } })
  await post(data('A', 1))
  await post(data('BAD', 1))
  await post('nothing')
  await clock.advance(1_000)
  const ended = new AbortController()
  const reader = feed.read({}, undefined, ended.signal)
  const first = await next(reader)
  expect(kinds(first)).toEqual(['gap', 'refused', 'failed', 'dead'])
  await post(data('A', 2))
  await clock.advance(1_000)
  const second = await next(reader)
  expect(kinds(second)).toEqual(['received', 'settled'])
  ended.abort()
  expect((await reader.next()).done).toBe(true)
  await post(data('A', 3))
  await clock.advance(1_000)
  const again = feed.read({}, second.cursor, AbortSignal.timeout(10_000))
  expect(kinds(await next(again))).toEqual([])
  await again.return(undefined)
})

test('goes on after a cursor, without a gap and without showing anything twice', async () => {
  const { feed, post, clock } = watched()
  const stop = feed.keep()
  for (let n = 0; n < 3; n += 1) await post(data('A', n))
  await clock.advance(1_000)
  const reader = feed.read({}, undefined, AbortSignal.timeout(10_000))
  const { items, cursor, missed } = await next(reader)
  await reader.return(undefined)
  expect([items.length, missed]).toEqual([6, 0])
  await post(data('B', 1))
  await clock.advance(1_000)
  const again = feed.read({}, cursor, AbortSignal.timeout(10_000))
  const rest = await next(again)
  await again.return(undefined)
  expect(rest.items.map((item) => ('event' in item ? item.event : undefined))).toMatchObject([
    { vin: 'B' },
    { vin: 'B' },
  ])
  const ofEarlierProcess = feed.read({}, `00000000.${'9'.repeat(3)}.0`, AbortSignal.timeout(10_000))
  expect((await next(ofEarlierProcess)).items).toHaveLength(8)
  await ofEarlierProcess.return(undefined)
  stop()
})

test('handled messages do not push out errors, and large ones do not fill the memory', async () => {
  const { feed, post, clock } = watched({ retry: { attempts: 1 } })
  const stop = feed.keep()
  await post(data('BAD', 1))
  await clock.advance(1_000)
  for (let n = 0; n < 40; n += 1) await post(data('A', n, { Name: 'x'.repeat(100_000) }))
  await clock.advance(1_000)
  const reader = feed.read({}, undefined, AbortSignal.timeout(10_000))
  const { items } = await next(reader)
  await reader.return(undefined)
  expect(items.filter(({ kind }) => kind === 'dead')).toHaveLength(1)
  expect(items.filter(({ kind }) => kind === 'received').length).toBeLessThan(11)
  stop()
})

test('can be limited to a vehicle, a topic, or errors', async () => {
  const { feed, post, clock } = watched({ retry: { attempts: 1 } })
  const stop = feed.keep()
  for (const vin of ['A', 'B', 'BAD']) await post(data(vin, 1))
  await clock.advance(1_000)
  const read = async (filter: Parameters<Feed['read']>[0]): Promise<string[]> => {
    const reader = feed.read(filter, undefined, AbortSignal.timeout(10_000))
    const batch = await next(reader)
    await reader.return(undefined)
    return kinds(batch)
  }
  expect(await read({ vin: 'B' })).toEqual(['received', 'settled'])
  expect(await read({ topic: 'state' })).toEqual([])
  expect(await read({ errors: true })).toEqual(['failed', 'dead'])
  stop()
})
