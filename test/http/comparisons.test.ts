import timingSafeEqual from 'timing-safe-equal'
import { createReceiver } from 'fleethook'
import { beforeEach, expect, test, vi } from 'vitest'
import { remember } from './ways.ts'

// The library itself, counted.
vi.mock('timing-safe-equal', async (original) => {
  const { default: real }: { default: typeof timingSafeEqual } = await original()
  return { default: vi.fn<typeof timingSafeEqual>(real) }
})

const counted = vi.mocked(timingSafeEqual)
beforeEach(() => {
  counted.mockClear()
})

const secrets = ['first-secret', 'second-secret', 'Bearer third-secret', 'Splunk fourth-secret']

test.each([
  ['the first', 'first-secret'],
  ['the last', 'Splunk fourth-secret'],
  ['one in the middle', 'Splunk second-secret'],
  ['one with a scheme', 'Bearer third-secret'],
  ['none, of the length of one', 'fIrst-secret'],
  ['none', 'x'],
  ['none, longer than any', 'x'.repeat(5000)],
])('all candidates are evaluated, without early exit, when the header is %s', async (_case, authorization) => {
  const { accept } = createReceiver({ secret: secrets, log: remember() })
  counted.mockClear()
  await accept({ authorization, body: '{}' })
  // Each whole, and each but the one with a scheme of its own without its scheme.
  expect(counted).toHaveBeenCalledTimes(7)
})

test('only buffers of one length are compared, whatever the lengths of secret and header', async () => {
  const lengths = new Set<number>()
  counted.mockImplementation((a, b) => {
    lengths.add(a.byteLength).add(b.byteLength)
    return false
  })
  for (const secret of ['x', 'x'.repeat(100), 'x'.repeat(1024)]) {
    const { accept } = createReceiver({ secret })
    for (const authorization of ['y', 'y'.repeat(100), 'y'.repeat(5000), 'ž'.repeat(600)]) {
      expect(await accept({ authorization, body: '{}' })).toMatchObject({ status: 403 })
    }
  }
  expect(lengths.size).toBe(1)
})
