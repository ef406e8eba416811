import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { createGroupCommit, whenQuiet } from '../../adapters/inbox/sqlite/group-commit.ts'

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

describe('a commit in a thread waits for more messages', () => {
  test("until none has arrived for 5% of a commit's duration", async () => {
    let count = 1
    const ready = vi.fn<() => void>()
    whenQuiet(() => count, 100, ready)
    await turnAt(4)
    count = 2
    await turnAt(6)
    await turnAt(10)
    expect(ready).not.toHaveBeenCalled()
    await turnAt(11)
    expect(ready).toHaveBeenCalledOnce()
    await turnAt(500)
    expect(ready).toHaveBeenCalledOnce()
  })

  test('but no longer than one commit takes', async () => {
    let count = 1
    const ready = vi.fn<() => void>()
    whenQuiet(() => count, 10, ready)
    for (let ms = 0.25; ms < 10; ms += 0.25) {
      count += 1
      await turnAt(ms)
    }
    expect(ready).not.toHaveBeenCalled()
    count += 1
    await turnAt(10)
    expect(ready).toHaveBeenCalledOnce()
  })

  test('and not at all when commits take no time', async () => {
    const ready = vi.fn<() => void>()
    whenQuiet(() => 1, 0, ready)
    await turnAt(0)
    expect(ready).toHaveBeenCalledOnce()
  })
})

test('after a stalled commit, the next one does not wait as long', async () => {
  let commits = 0
  const queue = createGroupCommit({
    file: {
      async commit({ moves }) {
        commits += 1
        if (commits === 1) nowMs += 10_000
        return {
          moved: moves.map(() => undefined),
          retracted: { messages: 0, bytes: 0 },
          hasRoom: true,
          oldest: undefined,
          deadLetters: 0,
        }
      },
    },
    clock: { now: () => nowMs },
    pendingBytes: () => 0,
    onCommitted: () => {},
    onFailed: () => {},
    health: { isUsable: true },
    inThread: true,
  })
  await queue.put([])
  for (let ms = 0; ms < 60; ms += 1) {
    void queue.put([])
    await turnAt(nowMs + 1)
  }
  expect(commits).toBeGreaterThan(1)
})
