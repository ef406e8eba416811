import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, describe, expect, test } from 'vitest'
import { runtimePath } from '../../../scripts/runtimes.ts'
import { type Row, versionsOf, writeFigures } from '../figures.ts'
import { inForm } from '../../form.ts'
import { classes, type subjects } from './trials.ts'
import type { Comparison } from './welch.ts'

/*
 * Does the time of a refusal show how much of a guessed secret was right? The test asks as dudect does: two classes of
 * wrong guesses, timed many times in random order, and Welch's t between them.
 *
 * The test must find a leak that exists. So it also measures `===`, which must separate the classes in every round:
 * |t| above 10, dudect's "probably leaks". With secrets this long, |t| is in the hundreds. And the test must not fail
 * by chance. |t| above 4.5 happens by chance once in a hundred thousand times. But the layout in memory and the order
 * of compilation can make one class a tenth of a nanosecond slower for the life of a process, and 100,000 measurements
 * show that. A leak exists in every process and always has the same sign. So our comparison fails only when all of
 * several processes find a difference with the same sign. A leak of ten standard errors cannot pass. The figures say
 * how many nanoseconds that is, and what `===` leaks.
 *
 * Workers are not measured, because their clock stands still while code runs, for this very reason.
 */
const leaks = 10
const suspicious = 4.5
const rounds = inForm({ full: 5, long: 10 })

const runtimes = ['node24', 'bun', 'deno'] as const
type Runtime = (typeof runtimes)[number]

// Deno compares in JavaScript, byte by byte.
const times: Readonly<Record<Runtime, number>> = inForm({
  full: { node24: 8_000, bun: 8_000, deno: 3_000 },
  long: { node24: 100_000, bun: 100_000, deno: 30_000 },
})
const lengths = inForm<readonly (keyof typeof classes)[]>({ full: ['long'], long: ['long', 'usual'] })

const measure = join(import.meta.dirname, 'measure.ts')
const flags: Readonly<Record<Runtime, readonly string[]>> = { node24: [], bun: ['run'], deno: ['run', '--allow-all'] }
const rows: Row[] = []

async function told(
  runtime: Runtime,
  subject: keyof typeof subjects,
  length: keyof typeof classes,
  number: number,
): Promise<Comparison> {
  const { stdout } = await promisify(execFile)(runtimePath(runtime), [
    ...flags[runtime],
    measure,
    subject,
    length,
    String(number),
    String(times[runtime]),
  ])
  const comparison: Comparison = JSON.parse(stdout)
  return comparison
}

function note(runtime: Runtime, what: string, sorts: string, results: readonly Comparison[]): void {
  const last = results.at(-1)
  rows.push({
    runtime,
    compared: what,
    guesses: sorts,
    't of each round': results.map(({ t }) => t.toFixed(1)).join(', '),
    'difference, ns': (last?.differenceNs ?? 0).toFixed(2),
    'its standard error, ns': (last?.errorNs ?? 0).toFixed(3),
  })
}

const orderOf = ({ runtime, guesses, compared }: Row): string => `${runtime} ${guesses} ${compared}`

afterAll(() =>
  writeFigures({
    piece: 'secret-timing',
    title: 'What the time of a refusal reveals about the secret',
    file: 'test/faults/secret',
    about:
      'Two kinds of wrong guesses, timed in random order and compared with Welch’s t-test, on all times and on the ' +
      'quickest parts of them. `===` is the control, and the test must detect it: |t| above 10 each time. Our comparison passes when a ' +
      `round stays below 4.5 or contradicts the one before. It fails when ${rounds} rounds, each in its own process, agree. The ` +
      'difference comes from the last round, from the part of the times with the smallest error. The test would detect a difference ' +
      'of ten such errors.',
    tables: [
      {
        title: `Welch’s t, ${Object.values(times).join(' / ')} times on ${runtimes.join(' / ')}`,
        rows: rows.toSorted((a, b) => orderOf(a).localeCompare(orderOf(b))),
      },
    ],
    versions: versionsOf(runtimes),
  }),
)

const timeout = inForm({ full: 180_000, long: 3_600_000 })

describe.each(inForm<readonly Runtime[]>({ real: ['node24'], full: runtimes }))(
  'on %s, with a wrong secret',
  { concurrent: true, timeout },
  (runtime) => {
    const cases = lengths.flatMap((length) => classes[length].map(({ name }, number) => ({ name, length, number })))

    test.each(cases.filter(({ length }) => length === 'long'))(
      'control: the time of === tells whether $name',
      async ({ name, length, number }) => {
        const results = [await told(runtime, 'plain', length, number), await told(runtime, 'plain', length, number)]
        note(runtime, '=== (control)', name, results)
        for (const { t } of results) expect(Math.abs(t)).toBeGreaterThan(leaks)
      },
    )

    test.each(cases.flatMap((given) => (['comparison', 'guard'] as const).map((subject) => ({ ...given, subject }))))(
      'the time of the $subject does not tell whether $name',
      async ({ name, length, number, subject }) => {
        const results: Comparison[] = []
        const isSuspicious = ({ t }: Comparison): boolean =>
          Math.abs(t) > suspicious && Math.sign(t) === Math.sign(results[0]?.t ?? t)
        do results.push(await told(runtime, subject, length, number))
        while (results.length < rounds && results.every(isSuspicious))
        note(runtime, subject === 'guard' ? 'the whole guard' : 'our comparison', name, results)
        expect(
          results.filter((result) => !isSuspicious(result)),
          JSON.stringify(results),
        ).not.toEqual([])
      },
    )
  },
)
