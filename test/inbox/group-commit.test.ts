import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { GroupCommit } from '../../adapters/inbox/sqlite/group-commit.ts'

let nowMs = 0
beforeEach(() => {
  nowMs = 0
  vi.spyOn(performance, 'now').mockImplementation(() => nowMs)
})
afterEach(() => vi.restoreAllMocks())

/** One turn of the event loop at this time. */
async function turnAt(ms: number): Promise<void> {
  nowMs = ms
  await new Promise((resolve) => setImmediate(resolve))
}

const written = {
  ...{ retracted: { messages: 0, bytes: 0 }, hasRoom: true },
  ...{ oldest: undefined, deadLetters: 0 },
}

/** A queue, and what its file does with this number of messages. */
function queueOf(commit: (puts: number) => Promise<void> | void): GroupCommit {
  return new GroupCommit({
    file: {
      async commit({ puts, moves }) {
        await commit(puts.length)
        return { ...written, moved: moves.map(() => undefined) }
      },
    },
    health: { isUsable: true, failed: () => {} },
    believed: { knownMs: 0 },
    pending: { fileBytes: 0 },
  })
}

test('two groups of callers that take turns are in one commit afterwards', async () => {
  const sizes: number[] = []
  const waiting: (() => void)[] = []
  const queue = queueOf(async (puts) => {
    sizes.push(puts)
    await new Promise<void>((resolve) => waiting.push(resolve))
    nowMs += 10
  })
  let seq = 0
  const put = async (): Promise<void> => {
    for (let n = 0; n < 4; n += 1) {
      seq += 1
      await queue.put([
        { seq, id: String(seq), lane: 'a', receivedAt: 0, door: 'root', kind: 'wire', bytes: 1, text: '1' },
      ])
      // Its next message arrives in a later turn.
      await new Promise((resolve) => setImmediate(resolve))
    }
  }
  const first = put()
  while (waiting.length === 0) await turnAt(nowMs + 1)
  const others = Promise.all([put(), put(), put()])
  while (sizes.reduce((sum, size) => sum + size, 0) < 16) {
    waiting.shift()?.()
    await turnAt(nowMs + 1)
  }
  waiting.shift()?.()
  await Promise.all([first, others])
  expect(sizes).toEqual([1, 4, 4, 4, 3])
})

test('a put of any number of messages is written', async () => {
  const sizes: number[] = []
  const queue = queueOf((puts) => void sizes.push(puts))
  const one = { lane: 'a', receivedAt: 0, door: 'root', kind: 'wire', bytes: 1, text: '1' } as const
  await queue.put(Array.from({ length: 200_000 }, (_one, seq) => ({ seq, id: String(seq), ...one })))
  expect(sizes).toEqual([200_000])
})

test('after a stalled commit, the next one does not wait as long', async () => {
  let commits = 0
  const queue = queueOf(() => {
    commits += 1
    if (commits === 1) nowMs += 10_000
  })
  await queue.put([])
  for (let ms = 0; ms < 60; ms += 1) {
    void queue.put([])
    await turnAt(nowMs + 1)
  }
  expect(commits).toBeGreaterThan(1)
})
