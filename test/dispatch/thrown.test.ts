import { Discard, Retry } from 'fleethook'
import { describe, expect, test } from 'vitest'
import { data, scene } from './scene.ts'

describe('Retry', () => {
  test('runs that handler again after its own time, and counts as an attempt', async () => {
    const { receiver, post, clock, lines } = scene({ retry: { attempts: 2 } })
    const told: unknown[] = []
    const runs: unknown[] = []
    receiver.observe({ failed: (error) => void told.push(error) })
    receiver
      .on('data', (_, { delivery }) => {
        runs.push(delivery.attempt)
        throw new Retry(60_000)
      })
      .on('data', () => void runs.push('other'))
    await post(data('A', 1))
    await clock.advance(59_999)
    expect(runs).toEqual([1, 'other'])
    await clock.advance(1)
    expect(runs).toEqual([1, 'other', 2])
    expect(await Array.fromAsync(receiver.deadLetters.list())).toMatchObject([
      { attempts: 2, error: expect.stringContaining('60000 ms') },
    ])
    expect(told).toEqual([])
    expect(lines.filter((line) => line.includes('failed'))).toEqual([])
    expect(receiver.stats()).toMatchObject({ retried: 1, deadLettered: 1 })
  })

  test('a dead letter has its cause', async () => {
    const { receiver, send } = scene({ retry: { attempts: 1 } })
    receiver.on('data', () => {
      throw new Retry(0, { cause: new RangeError('busy') })
    })
    await send(data('A', 1))
    expect(await Array.fromAsync(receiver.deadLetters.list())).toMatchObject([{ error: 'RangeError: busy' }])
  })

  test('beside another handler that fails, the longer of the two waits applies', async () => {
    const { receiver, post, clock } = scene({ retry: { minMs: 10, maxMs: 10 } })
    let runs = 0
    receiver
      .on('data', () => {
        throw new Error('no')
      })
      .on('data', () => {
        runs += 1
        throw new Retry(500)
      })
    await post(data('A', 1))
    await clock.advance(499)
    expect(runs).toBe(1)
    await clock.advance(1)
    expect(runs).toBe(2)
  })
})

describe('Discard', () => {
  test('ends the message for its handler: no retry, no dead letter; counted, and logged with its reason', async () => {
    const { receiver, post, clock, lines } = scene()
    const runs: unknown[] = []
    const told: unknown[] = []
    receiver.observe({ failed: (error) => void told.push(error) })
    receiver
      .on('data', async () => {
        runs.push('one')
        throw new Discard('older than a week')
      })
      .on('data', () => void runs.push('two'))
    await post(data('A', 4711))
    await clock.advance(60_000)
    expect(runs).toEqual(['one', 'two'])
    expect(told).toEqual([])
    expect(receiver.stats()).toMatchObject({ handled: 1, discarded: 1, retried: 0, deadLettered: 0 })
    expect(await Array.fromAsync(receiver.deadLetters.list())).toEqual([])
    const said = lines.filter((line) => line.includes('threw Discard'))
    expect(said).toEqual([expect.stringContaining('older than a week')])
    expect(said.join()).not.toContain('4711')
  })
})

const foreign = (kind: string, more: object = {}): Error => Object.assign(new Error('x'), { fleethook: kind, ...more })

test.each([
  ['retry', { afterMs: 5 }, { retried: 1, discarded: 0 }, 5],
  ['retry', { afterMs: 1e12 }, { handled: 0, discarded: 0 }, 2 ** 31 - 1],
  ['retry', { afterMs: 'soon' }, { retried: 1, discarded: 0 }, undefined],
  ['discard', { reason: 'r' }, { retried: 0, discarded: 1 }, undefined],
])('a request to %s of another copy of the package with %j is recognized', async (kind, more, counts, waitMs) => {
  const { receiver, send, clock, lines } = scene()
  let runs = 0
  receiver.on('data', () => {
    runs += 1
    if (runs === 1) throw foreign(kind, more)
  })
  await send(data('A', 1))
  if (waitMs !== undefined) expect(clock.timers()).toContain(waitMs)
  await clock.advance(10)
  expect(receiver.stats()).toMatchObject({ ...counts, deadLettered: 0 })
  expect(lines.filter((line) => line.includes('failed'))).toEqual([])
})

test.each<[string, unknown]>([
  ['an error', new Error('x')],
  ['another request', foreign('other')],
  ['a retry without a time', foreign('retry')],
  ['no error', { fleethook: 'discard', reason: 'r' }],
  ['nothing', null],
  ['a text', 'retry'],
])('%s is none, and counts as a failure', async (_, thrown) => {
  const { receiver, send, lines } = scene({ retry: { attempts: 1 } })
  receiver.on('data', () => {
    throw thrown
  })
  await send(data('A', 1))
  expect(receiver.stats()).toMatchObject({ discarded: 0, deadLettered: 1 })
  expect(lines.join()).toContain('failed')
})
