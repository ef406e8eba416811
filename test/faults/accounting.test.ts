import { expect, test } from 'vitest'
import { account, type Evidence, refusalsIn } from './accounting.ts'
import type { GapLine, RunLine } from './process/journal.ts'
import type { Sent } from './process/traffic.ts'

/*
 * A checker that finds nothing may be blind. So it gets a history in which every message is accounted for, and then the same
 * history with one thing changed.
 */
const startMs = Date.UTC(2026, 4, 1, 12)
const none = { unaccounted: [], outOfOrder: [], settledAgain: [], handledTwice: [] }

/** Two vehicles send ten messages each, one every 100 ms. What happens depends on the number. */
function history(): Evidence & { readonly journal: { readonly runs: RunLine[]; readonly gaps: GapLine[] } } {
  const sent: Sent[] = []
  const runs: RunLine[] = []
  for (let number = 1; number <= 10; number++) {
    for (const vin of ['V1', 'V2']) {
      const sentAtMs = startMs + number * 100
      const [status, error] = answerOf(vin, number)
      sent.push({ vin, number, sentAtMs, endedAtMs: sentAtMs + 5, status, ...(error === undefined ? {} : { error }) })
      if (status === 200 && !(vin === 'V2' && number === 3)) runs.push(runOf(vin, number))
    }
  }
  return {
    sent,
    journal: {
      runs,
      edges: [],
      gaps: [
        // Down from the fifth to the seventh message, and full for one vehicle at the ninth.
        { kind: 'gap', pid: 2, reason: 'restarted', fromMs: startMs + 480, toMs: startMs + 720, missed: 0 },
        {
          kind: 'gap',
          pid: 2,
          vin: 'V2',
          reason: 'inbox_full',
          fromMs: startMs + 902,
          toMs: startMs + 950,
          missed: 1,
        },
      ],
      dead: [{ kind: 'dead', vin: 'V2', number: 3, delivery: 'V2 3' }],
    },
    refusals: new Map([['secret_wrong', 2]]),
  }
}

function answerOf(vin: string, number: number): readonly [number, string?] {
  if (number >= 5 && number <= 7) return [0, 'ECONNREFUSED']
  if (number === 8) return [403, 'secret_wrong']
  return vin === 'V2' && number === 9 ? [503, 'inbox_full'] : [200]
}

function runOf(vin: string, number: number): RunLine {
  const delivery = `${vin} ${number}`
  return { kind: 'run', pid: number < 5 ? 1 : 2, vin, number, delivery, attempt: 1, redelivered: false, atMs: startMs }
}

const withRuns = (runs: readonly RunLine[]): Evidence => ({ ...history(), journal: { ...history().journal, runs } })
/** The same history with the gaps changed. The first one is of the downtime, the second one of the full inbox. */
const withGaps = (change: (gap: GapLine, at: number) => GapLine): Evidence => {
  const { journal } = history()
  return { ...history(), journal: { ...journal, gaps: journal.gaps.map(change) } }
}

test('a history in which every message is accounted for has no violations', () => {
  expect(account(history())).toEqual({
    violations: none,
    fates: { handled: 10, dead: 1, gap: 7, refused: 2, unaccounted: 0 },
    refusedAndHandled: [],
  })
})

test('control: an acknowledged message that no handler saw is unaccounted for', () => {
  const { violations, fates } = account(withRuns(history().journal.runs.filter(({ delivery }) => delivery !== 'V1 2')))
  expect(fates.unaccounted).toBe(1)
  expect(violations.unaccounted).toEqual([expect.stringMatching(/^V1 2: sent at 12:00:00.200, 200 at/)])
})

test('control: a gap is no excuse for an acknowledged message', () => {
  const everywhere: GapLine = {
    kind: 'gap',
    pid: 2,
    reason: 'restarted',
    fromMs: startMs,
    toMs: startMs + 2000,
    missed: 0,
  }
  const runs = history().journal.runs.filter(({ delivery }) => delivery !== 'V1 2')
  const { violations } = account({ ...history(), journal: { ...history().journal, runs, gaps: [everywhere] } })
  expect(violations.unaccounted).toEqual([expect.stringContaining('V1 2')])
})

test.each([
  ['begins late', (gap: GapLine): GapLine => ({ ...gap, fromMs: gap.fromMs + 100 }), ['V1 5', 'V2 5']],
  ['ends early', (gap: GapLine): GapLine => ({ ...gap, toMs: gap.toMs - 100 }), ['V1 7', 'V2 7']],
  ['is of one vehicle', (gap: GapLine): GapLine => ({ ...gap, vin: 'V2' }), ['V1 5', 'V1 6', 'V1 7']],
  ['ends before it begins', (gap: GapLine): GapLine => ({ ...gap, fromMs: gap.toMs, toMs: gap.fromMs }), 6],
])('control: messages outside a gap that %s are unaccounted for', (_, change, expected) => {
  const { violations } = account(withGaps((gap, at) => (at === 0 ? change(gap) : gap)))
  if (typeof expected === 'number') expect(violations.unaccounted).toHaveLength(expected)
  else expect(violations.unaccounted.map((story) => story.slice(0, 4))).toEqual(expected)
})

test('control: a gap of another vehicle does not cover a refused message', () => {
  const { violations } = account(withGaps((gap, at) => (at === 1 ? { ...gap, vin: 'V1' } : gap)))
  expect(violations.unaccounted).toEqual([expect.stringContaining('V2 9: sent at 12:00:00.900, 503 inbox_full')])
})

test('control: a 4xx that the log did not count is unaccounted for', () => {
  const { violations } = account({
    ...history(),
    refusals: new Map([
      ['secret_wrong', 1],
      ['body_not_json', 1],
    ]),
  })
  expect(violations.unaccounted).toEqual([expect.stringMatching(/^V2 8: .* the log counts 1 of these/)])
})

test('control: a dead letter that the inbox does not have is unaccounted for', () => {
  const { journal } = history()
  const { violations } = account({ ...history(), journal: { ...journal, dead: [] } })
  expect(violations.unaccounted).toEqual([expect.stringContaining('V2 3')])
})

test('control: two messages of a vehicle that were handled in the wrong order are reported', () => {
  const { runs } = history().journal
  const swapped = runs.toSpliced(0, 3, ...[runs[2], runs[1], runs[0]].flatMap((run) => run ?? []))
  expect(account(withRuns(swapped)).violations).toMatchObject({
    unaccounted: [],
    outOfOrder: expect.arrayContaining(['V1 1']),
  })
})

test('control: a message that was handled twice without a mark is reported', () => {
  const { runs } = history().journal
  const again = runOf('V1', 4)
  const at = runs.findIndex(({ pid }) => pid === 2)
  expect(account(withRuns(runs.toSpliced(at, 0, { ...again, pid: 2 }))).violations.handledTwice).toEqual(['V1 4'])
  const marked = runs.toSpliced(at, 0, { ...again, pid: 2, redelivered: true })
  expect(account(withRuns(marked)).violations).toEqual(none)
})

test('control: a message that was handled again although a later one was settled is reported', () => {
  const { runs } = history().journal
  const at = runs.findIndex(({ pid }) => pid === 2)
  const again = { ...runOf('V1', 2), pid: 2, redelivered: true }
  expect(account(withRuns(runs.toSpliced(at, 0, again))).violations.settledAgain).toContain('V1 2')
})

test('messages that a crash left can be handled again by several processes, in order and never from an earlier one on', () => {
  const { runs } = history().journal
  const at = runs.findIndex(({ pid }) => pid === 2)
  const again = (pid: number, ...numbers: readonly number[]): readonly RunLine[] =>
    numbers.map((number) => ({ ...runOf('V1', number), pid, redelivered: true }))
  const settledAgain = (...lines: readonly RunLine[]): readonly string[] =>
    account(withRuns(runs.toSpliced(at, 0, ...lines))).violations.settledAgain
  // The first process handled four messages and settled one. The next ones end before they have handled the other three again.
  expect(settledAgain(...again(3, 2, 3), ...again(4, 3), ...again(2, 4))).toEqual([])
  expect(settledAgain(...again(3, 2, 3), ...again(2, 2, 3, 4))).toEqual([])
  expect(settledAgain(...again(3, 3, 4), ...again(2, 2, 3, 4))).toContain('V1 2')
  expect(settledAgain(...again(3, 2, 4))).toContain('V1 4')
  expect(settledAgain(...again(3, 2), ...again(2, 3))).toContain('V1 3')
})

test('a message that was refused and handled is counted', () => {
  const runs = [...history().journal.runs, runOf('V2', 9)]
  expect(account(withRuns(runs)).refusedAndHandled).toEqual(['V2 9'])
})

test('a message without an answer has no order, because it may arrive after the next one', () => {
  const { sent, journal } = history()
  const late = sent.map((message) =>
    message.vin === 'V1' && message.number === 9 ? { ...message, status: 0 } : message,
  )
  const runs = journal.runs.toSorted((a, b) => Number(a.delivery === 'V1 9') - Number(b.delivery === 'V1 9'))
  expect(account({ ...history(), sent: late, journal: { ...journal, runs } }).violations).toEqual(none)
})

test('with a clock that was set back, a gap counts by the clock before or after', () => {
  const moved = withGaps((gap) => ({ ...gap, fromMs: gap.fromMs - 3_600_000, toMs: gap.toMs - 3_600_000 }))
  expect(account(moved).fates.unaccounted).toBe(7)
  expect(account({ ...moved, clockOffsetsMs: [0, -3_600_000] }).violations).toEqual(none)
})

test('the log counts the first refused request in two lines, and later ones in one', () => {
  const lines = [
    'fleethook: 1 request refused: secret_wrong. The Authorization header does not have a secret of this receiver.',
    'fleethook: 3 requests refused in 10 s: secret_wrong 2, path_unknown 1. The Authorization header … {',
    'fleethook: 5 requests refused in 10 s: body_not_json. The service sends each message once, so these are lost.',
    'fleethook: 1 request refused: path_unknown. Compare the path in the url of the webhook with …',
  ]
  const counts = [
    ['secret_wrong', 2],
    ['path_unknown', 2],
    ['body_not_json', 5],
  ] as const
  expect(refusalsIn([lines])).toEqual(new Map(counts))
  expect(refusalsIn([[lines[0] ?? ''], [lines[0] ?? '']])).toEqual(new Map([['secret_wrong', 2]]))
})
