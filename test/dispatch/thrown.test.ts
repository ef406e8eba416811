import { Discard, FleethookError, Retry } from 'fleethook'
import { describe, expect, test } from 'vitest'
import { requestOf } from '../../src/core/retry.ts'
import { turn } from './fake-clock.ts'
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
    const { receiver, post } = scene({ retry: { attempts: 1 } })
    receiver.on('data', () => {
      throw new Retry(0, { cause: new RangeError('busy') })
    })
    await post(data('A', 1))
    await turn()
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

  test.each([-1, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 31])('%d milliseconds are refused', (afterMs) => {
    expect(() => new Retry(afterMs)).toThrow(FleethookError)
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

test('Retry and Discard from another copy of the package are recognized, and nothing else is', () => {
  const foreign = (kind: string, more: object): Error => Object.assign(new Error('x'), { fleethook: kind, ...more })
  expect(requestOf(foreign('retry', { afterMs: 5 }))).toEqual({ kind: 'retry', afterMs: 5, cause: undefined })
  expect(requestOf(foreign('retry', { afterMs: 1e12 }))).toMatchObject({ afterMs: 2 ** 31 - 1 })
  expect(requestOf(foreign('retry', { afterMs: 'soon' }))).toMatchObject({ afterMs: 0 })
  expect(requestOf(foreign('discard', { reason: 'r' }))).toEqual({ kind: 'discard', reason: 'r' })
  for (const other of [
    new Error('x'),
    foreign('other', {}),
    foreign('retry', {}),
    { fleethook: 'discard', reason: 'r' },
    null,
    'retry',
  ])
    // prettier-ignore
    expect(requestOf(other)).toBeUndefined()
})
