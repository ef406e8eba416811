import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, describe, expect, test } from 'vitest'
import { type Runtime, runtimePath } from '../../scripts/runtimes.ts'
import { type Row, versionsOf, writeFigures } from '../faults/figures.ts'
import { form, inForm } from '../form.ts'
import { runCases, type Summary } from './cases.ts'
import type { Face } from './face.ts'
import { mutatedText } from './mutation.ts'

const campaign = join(import.meta.dirname, 'campaign.ts')
const flags: Partial<Record<Runtime, readonly string[]>> = { bun: ['run'], deno: ['run', '--allow-all'] }

/**
 * The short form runs the same cases every time, so that it fails for everybody or for nobody. The long form runs new
 * cases and prints their numbers.
 */
const run = inForm({ full: 1, long: Math.floor(Date.now() / 1000) % 1_000_000_000 })

const million = 1_000_000
const campaigns = inForm<readonly (readonly [Runtime, 'normalizer' | 'http', number])[]>({
  short: [
    ['node24', 'normalizer', 1_500],
    ['node24', 'http', 400],
    ['bun', 'http', 250],
    ['deno', 'http', 250],
  ],
  full: [
    ['node24', 'normalizer', 12_000],
    ['node24', 'http', 4_000],
    ['bun', 'normalizer', 5_000],
    ['bun', 'http', 2_000],
    ['deno', 'normalizer', 5_000],
    ['deno', 'http', 2_000],
  ],
  long: [
    ['node24', 'normalizer', 8 * million],
    ['node24', 'http', 2 * million],
    ['bun', 'normalizer', million],
    ['bun', 'http', million / 2],
    ['deno', 'normalizer', million],
    ['deno', 'http', million / 2],
  ],
})

/** Processes of one campaign. In the long form there is one for each of two cores, one campaign after another. */
const processes = inForm({ full: 1, long: 2 })

const rows: Row[] = []

async function runPart(runtime: Runtime, face: string, from: number, cases: number): Promise<Summary> {
  const { stdout } = await promisify(execFile)(runtimePath(runtime), [
    ...(flags[runtime] ?? []),
    campaign,
    face,
    ...[run, from, cases].map(String),
  ])
  const summary: Summary = JSON.parse(stdout)
  return summary
}

afterAll(() =>
  writeFigures({
    piece: 'fuzzing',
    title: 'Mutated messages',
    file: 'test/fuzz/campaign.test.ts',
    about:
      'Messages of a simulated fleet and of public sources, of every topic in all three formats, mutated as values, as ' +
      'text, as bytes and as gzip. Each case is one body, sent and checked against the contract: nothing throws. Pieces equal ' +
      'the result of `JSON.parse`. An event has a topic, a date, and an id that stays the same when the event is written in any ' +
      'format and read again. The answer is one of the table, is 200 only for a whole body, and is the same by `fetch` and by ' +
      '`accept`. Every acknowledged message was handled. No prototype has changed. No case takes a second. Repeat case `n` with ' +
      '`node test/fuzz/campaign.ts <what> <run> <n> 1`.',
    tables: [{ title: `Run ${run}`, rows }],
    versions: versionsOf(['node24', 'bun', 'deno']),
  }),
)

describe(
  `Whatever a message is, what is promised is kept (run ${run})`,
  { concurrent: form !== 'long', timeout: inForm({ full: 180_000, long: 7_200_000 }) },
  () => {
    test.each(campaigns)('on %s by the %s, in %i cases', async (runtime, face, cases) => {
      const each = cases / processes
      const parts = await Promise.all(
        Array.from({ length: processes }, (_, part) => runPart(runtime, face, part * each, each)),
      )
      const failures = parts.flatMap(({ failures }) =>
        failures.map(({ number, flaw }) => `node test/fuzz/campaign.ts ${face} ${run} ${number} 1\n${flaw}`),
      )
      const done = parts.reduce((sum, part) => sum + part.cases, 0)
      rows.push({
        runtime,
        what: face,
        cases: done,
        failures: failures.length,
        'seconds on two cores': Math.round(Math.max(...parts.map(({ seconds }) => seconds))),
        'slowest case in ms': Math.round(Math.max(...parts.map(({ slowestMs }) => slowestMs))),
      })
      expect(failures.join('\n\n')).toBe('')
      expect(done).toBe(cases)
    })
  },
)

describe('control: the campaign finds a fault and prints the number that repeats it', () => {
  const faulty = (flawOf: (text: string) => string | undefined): Face => ({
    check: (random) => flawOf(mutatedText(random)),
    checkAll: () => undefined,
  })

  test.each([
    ['a message with an odd key', (text: string) => (text.includes('"__proto__":') ? 'odd key' : undefined)],
    ['half of a character', (text: string) => (text.isWellFormed() ? undefined : 'half of a character')],
    ['two keys of one name', (text: string) => (/"(\w+)":[^,{}]*,"\1":/.test(text) ? 'two keys' : undefined)],
    ['deep nesting', (text: string) => (text.includes('['.repeat(300)) ? 'deep' : undefined)],
    ['a byte order mark', (text: string) => (text.startsWith('\ufeff') ? 'mark' : undefined)],
    ['a number beyond doubles', (text: string) => (text.includes('1e999') ? 'number' : undefined)],
  ])('one that only %s has', async (_what, flawOf) => {
    const { failures } = await runCases(faulty(flawOf), { run: 1, from: 0, cases: 10_000 })
    expect(failures.length).toBeGreaterThan(0)
    for (const { number, flaw } of failures) {
      const again = await runCases(faulty(flawOf), { run: 1, from: number, cases: 1 })
      expect(again.failures).toEqual([{ number, flaw }])
    }
  })
})
