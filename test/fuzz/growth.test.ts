import { createNormalizer, split } from 'fleethook/normalize'
import { afterAll, describe, expect, test } from 'vitest'
import { type Row, writeFigures } from '../faults/figures.ts'
import { inForm } from '../form.ts'
import { growing } from './growing.ts'

const size = inForm({ full: 1_000, long: 20_000 })
const normalizer = createNormalizer()
const rows: Row[] = []

function read(text: string): void {
  let read = 0
  for (const { value } of split(text).pieces) read += normalizer.normalize(value, 0).id.length
  expect(read % 32).toBe(0)
}

/** The shortest of several times, because other work of the machine only adds to it. */
function leastMs(run: (text: string) => void, text: string): number {
  const taken = Array.from({ length: 3 }, () => {
    const startedAt = performance.now()
    run(text)
    return performance.now() - startedAt
  })
  return Math.min(...taken)
}

interface Growth {
  readonly ms: number
  readonly fourfoldMs: number
  readonly ratio: number
}

/**
 * How much longer four times the size takes: 4 when the time is linear, 16 when it is quadratic. Measures again while
 * the result seems steep, and takes the smallest one. Times below a twentieth of a millisecond do not count, because
 * they show the clock.
 */
function growthOf(run: (text: string) => void, textOf: (size: number) => string, looks = 40): Growth {
  const [text, fourfold] = [textOf(size), textOf(4 * size)]
  run(text)
  let ms = Number.POSITIVE_INFINITY
  let fourfoldMs = Number.POSITIVE_INFINITY
  let ratio = Number.POSITIVE_INFINITY
  for (let look = 0; look < looks && ratio > 6; look++) {
    ms = Math.min(ms, Math.max(0.05, leastMs(run, text)))
    fourfoldMs = Math.min(fourfoldMs, leastMs(run, fourfold))
    ratio = fourfoldMs / ms
  }
  return { ms, fourfoldMs, ratio }
}

const tooSteep = 11

afterAll(() =>
  writeFigures({
    piece: 'growth',
    title: 'How the time to read a body grows with its size',
    file: 'test/fuzz/growth.test.ts',
    about:
      'The test splits, normalizes and identifies bodies of kinds that make parsers slow, and takes the shortest of several times. At four times the size, the ratio is 4 when time is linear and 16 when it is quadratic. More than 11 fails.',
    tables: [{ title: 'Four times the size', rows }],
  }),
)

const timeout = inForm({ full: 120_000, long: 3_600_000 })

describe('The time to read a body grows in proportion to its size', { timeout }, () => {
  test.each(Object.entries(growing))('%s', (name, textOf) => {
    const { ms, fourfoldMs, ratio } = growthOf(read, textOf)
    rows.push({
      body: name,
      kB: Math.round(textOf(4 * size).length / 1000),
      'ms at a quarter': ms.toFixed(2),
      ms: fourfoldMs.toFixed(2),
      ratio: ratio.toFixed(1),
    })
    expect(ratio).toBeLessThan(tooSteep)
  })

  test('control: the test detects a reader whose time grows with the square of the size', () => {
    const quadratic = (text: string): void => {
      let seen = 0
      for (let end = 0; end < text.length; end += 100) seen += JSON.stringify(text.slice(0, end)).length
      expect(seen).toBeGreaterThan(0)
    }
    const textOf = (wanted: number): string => '{"vin":"A","state":"online"}'.repeat(wanted === size ? 350 : 1_400)
    expect(growthOf(quadratic, textOf, 3).ratio).toBeGreaterThan(tooSteep)
  })
})
