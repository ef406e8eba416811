import timingSafeEqual from '#timing-safe-equal'
import { createReceiver } from 'fleethook'
import { beforeEach, expect, test, vi } from 'vitest'
import { remember } from './ways.ts'

// The library itself, counted.
vi.mock('#timing-safe-equal', async (original) => {
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
  expect(counted).toHaveBeenCalledTimes(secrets.length)
})

test.each([1, 100, 1024])(
  'only buffers of one length are compared with a secret of %i characters, whatever the length of the header',
  async (length) => {
    const lengths = new Set<number>()
    counted.mockImplementation((a, b) => {
      lengths.add(a.byteLength).add(b.byteLength)
      return false
    })
    const { accept } = createReceiver({ secret: 'x'.repeat(length) })
    lengths.clear()
    for (const authorization of ['y', 'y'.repeat(100), 'y'.repeat(5000), 'ž'.repeat(600)]) {
      expect(await accept({ authorization, body: '{}' })).toMatchObject({ status: 403 })
    }
    expect(lengths.size).toBe(1)
  },
)
