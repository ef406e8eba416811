import { afterEach, expect, test } from 'vitest'
import { endProcesses, type Fate, type FakeCluster, newCluster, startProcess } from './kafka-cluster.ts'

afterEach(endProcesses)

/** A receiver that handles all messages. Those with numbers that are equal modulo this are of one vehicle. */
async function setup(vehicles = 1) {
  const cluster = newCluster()
  const { clock } = cluster
  cluster.assigned = [0, 1]
  const seen: number[] = []
  const { receiver } = await startProcess(cluster, (n) => void seen.push(n))
  await clock.advance(1_000)
  cluster.requests.length = 0
  const post = async (n: number, more: object = {}): Promise<number> => {
    const body = { vin: `V${n % vehicles}`, createdAt: '2024-02-24T04:58:44Z', state: 'online', n, ...more }
    return (await receiver.accept({ authorization: undefined, body })).status
  }
  /** Lets time pass until all are answered. */
  const answered = async (...posts: readonly Promise<number>[]): Promise<readonly number[]> => {
    let answers: readonly number[] | undefined
    void Promise.all(posts).then((found) => (answers = found))
    for (let round = 0; round < 2_000 && answers === undefined; round += 1) await clock.advance(20)
    return answers ?? expect.fail('Somebody waits for an answer.')
  }
  return { cluster, clock, receiver, seen, post, answered }
}

const ofMessages = ({ requests }: FakeCluster) => requests.filter(({ messages }) => messages[0]?.topic === 'fleethook')
const upTo = (count: number): number[] => Array.from({ length: count }, (_, n) => n)

test('each request asks for all in-sync replicas, and takes what came during the last one', async () => {
  const { cluster, clock, seen, post, answered } = await setup()
  const answers = await answered(...upTo(1_200).map((n) => post(n)))
  expect(new Set(answers)).toEqual(new Set([200]))
  await clock.advance(2_000)
  expect(seen).toEqual(upTo(1_200))
  expect(new Set(cluster.requests.map(({ acks }) => acks))).toEqual(new Set([-1]))
  const sizes = ofMessages(cluster).map(({ messages }) => messages.length)
  expect(Math.max(...sizes)).toBe(500)
  expect(sizes.length).toBeLessThan(6)
})

test('whatever happens to requests, each vehicle keeps its order and nothing is lost that was acknowledged', async () => {
  const { cluster, clock, seen, post, answered } = await setup(6)
  const fates: readonly Fate[] = ['kept', 'refused', 'lost', 'kept, refused', 'kept, lost']
  let seed = 7
  cluster.fate = () => fates[(seed = (seed * 48_271) % 2_147_483_647) % fates.length] ?? 'kept'
  const posts: Promise<number>[] = []
  for (const n of upTo(600)) {
    posts.push(post(n))
    if (n % 7 === 0) await clock.advance(10)
  }
  const answers = await answered(...posts)
  await clock.advance(5_000)
  expect(answers.filter((status) => status === 200).length).toBeGreaterThan(300)
  expect(cluster.overlaps).toBe(0)
  for (const vehicle of upTo(6)) {
    const own = seen.filter((n) => n % 6 === vehicle)
    expect(own).toEqual([...new Set(own)].toSorted((one, other) => one - other))
  }
  expect(answers.flatMap((status, n) => (status === 200 && !seen.includes(n) ? [n] : []))).toEqual([])
})

test('a message that is too large for the brokers is refused alone', async () => {
  const { cluster, clock, seen, post, answered } = await setup()
  cluster.mostBytes = 1_000
  const [first, large, last] = await answered(post(1), post(2, { text: 'x'.repeat(1_000) }), post(3))
  expect([first, large === 200, last]).toEqual([200, false, 200])
  await clock.advance(1_000)
  expect(seen).toEqual([1, 3])
})

test('what the user may not write is refused at once, and makes the receiver unhealthy until it may', async () => {
  const { cluster, receiver, post, answered } = await setup()
  const health = async (): Promise<number> =>
    (await receiver.fetch(new Request('http://x/services/collector/health'))).status
  cluster.fate = ([first]) => (first?.topic === 'fleethook' ? 'kept' : 'not allowed')
  expect(await answered(post(1), post(2))).toEqual([200, 200])
  await cluster.clock.advance(10_000)
  // Signs of life are not messages.
  expect(await health()).toBe(200)
  cluster.fate = () => 'not allowed'
  cluster.requests.length = 0
  expect(await answered(post(3))).toEqual([503])
  expect(ofMessages(cluster)).toHaveLength(1)
  expect(await health()).toBe(503)
  cluster.fate = () => 'kept'
  await cluster.clock.advance(5_000)
  expect(await health()).toBe(200)
})

test('a receiver that ends answers what waits for brokers', async () => {
  const { cluster, receiver, post, answered } = await setup()
  cluster.fate = () => 'hangs'
  const waiting = post(1)
  await cluster.clock.advance(100)
  const drained = receiver.drain({ deadlineMs: 100, handlerGraceMs: 0 })
  expect(await answered(waiting)).toEqual([503])
  await cluster.clock.advance(20_000)
  await drained
  expect(await answered(post(2))).toEqual([503])
})
