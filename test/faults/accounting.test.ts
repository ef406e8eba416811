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
      dead: [{ kind: 'dead', vin: 'V2', number: 3, delivery: 'V2 3', error: 'Error: no' }],
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
  const once = { attempt: 1, redelivered: false, replayed: false, startedAtMs: startMs, atMs: startMs }
  return { kind: 'run', pid: number < 5 ? 1 : 2, vin, number, delivery, ...once }
}

const { runs: allRuns, gaps: allGaps } = history().journal
const withJournal = (journal: Partial<Evidence['journal']>): Evidence => {
  const given = history()
  return { ...given, journal: { ...given.journal, ...journal } }
}
const withRuns = (runs: readonly RunLine[]): Evidence => withJournal({ runs })
/** Runs of a second process, before its others. */
const withAgain = (...again: readonly RunLine[]): Evidence =>
  withRuns(
    allRuns.toSpliced(
      allRuns.findIndex(({ pid }) => pid === 2),
      0,
      ...again,
    ),
  )
/** The first gap is of the downtime, the second one of the full inbox. */
const withGap = (at: 0 | 1, change: (gap: GapLine) => Partial<GapLine>): Evidence =>
  withJournal({ gaps: allGaps.map((gap, place) => (place === at ? { ...gap, ...change(gap) } : gap)) })
const handledAgain = (number: number, marks: Partial<RunLine> = {}): RunLine => ({
  ...runOf('V1', number),
  pid: 2,
  ...marks,
})

const unhandled = allRuns.filter(({ delivery }) => delivery !== 'V1 2')
const everywhere: GapLine = {
  kind: 'gap',
  pid: 2,
  reason: 'restarted',
  fromMs: startMs,
  toMs: startMs + 2000,
  missed: 0,
}

test('a history in which every message is accounted for has no violations', () => {
  expect(account(history())).toEqual({
    violations: none,
    fates: { handled: 10, dead: 1, gap: 7, refused: 2, unaccounted: 0 },
    refusedAndHandled: [],
  })
})

test.each<readonly [change: string, history: Evidence, stories: readonly RegExp[]]>([
  ['an acknowledged message that no handler saw', withRuns(unhandled), [/^V1 2: sent at 12:00:00.200, 200 at/]],
  ['one inside a gap', withJournal({ runs: unhandled, gaps: [everywhere] }), [/^V1 2/]],
  ['messages before a gap', withGap(0, ({ fromMs }) => ({ fromMs: fromMs + 100 })), [/^V1 5/, /^V2 5/]],
  ['messages after a gap', withGap(0, ({ toMs }) => ({ toMs: toMs - 100 })), [/^V1 7/, /^V2 7/]],
  ['messages of other vehicles than the gap', withGap(0, () => ({ vin: 'V2' })), [/^V1 5/, /^V1 6/, /^V1 7/]],
  [
    'messages of a gap that ends before it begins',
    withGap(0, ({ fromMs, toMs }) => ({ fromMs: toMs, toMs: fromMs })),
    [/^V1 5/, /^V2 5/, /^V1 6/, /^V2 6/, /^V1 7/, /^V2 7/],
  ],
  [
    'a refused message of another vehicle than the gap',
    withGap(1, () => ({ vin: 'V1' })),
    [/^V2 9: sent at 12:00:00.900, 503 inbox_full/],
  ],
  [
    'a 4xx that the log did not count',
    { ...history(), refusals: new Map(Object.entries({ secret_wrong: 1, body_not_json: 1 })) },
    [/^V2 8: .* the log counts 1 of these/],
  ],
  ['a dead letter that the inbox does not have', withJournal({ dead: [] }), [/^V2 3/]],
])('control: unaccounted for is %s', (_change, evidence, stories) => {
  const { violations, fates } = account(evidence)
  expect(violations.unaccounted).toEqual(stories.map((story) => expect.stringMatching(story)))
  expect(fates.unaccounted).toBe(stories.length)
})

test('control: two messages of a vehicle that were handled in the wrong order are reported', () => {
  const swapped = allRuns.toSpliced(0, 3, ...[allRuns[2], allRuns[1], allRuns[0]].flatMap((run) => run ?? []))
  expect(account(withRuns(swapped)).violations).toMatchObject({
    unaccounted: [],
    outOfOrder: expect.arrayContaining(['V1 1']),
  })
})

test('control: a message that was handled twice without a mark is reported', () => {
  expect(account(withAgain(handledAgain(4))).violations.handledTwice).toEqual(['V1 4'])
  expect(account(withAgain(handledAgain(4, { redelivered: true }))).violations).toEqual(none)
})

test('control: a message that was handled again although a later one was settled is reported', () => {
  expect(account(withAgain(handledAgain(2, { redelivered: true }))).violations.settledAgain).toContain('V1 2')
})

test('messages that a crash left can be handled again by several processes, in order and never from an earlier one on', () => {
  const again = (pid: number, ...numbers: readonly number[]): readonly RunLine[] =>
    numbers.map((number) => handledAgain(number, { pid, redelivered: true }))
  const settledAgain = (...lines: readonly RunLine[]): readonly string[] =>
    account(withAgain(...lines)).violations.settledAgain
  // The first process handled four messages and settled one. The next ones end before they have handled the other three again.
  expect(settledAgain(...again(3, 2, 3), ...again(4, 3), ...again(2, 4))).toEqual([])
  expect(settledAgain(...again(3, 2, 3), ...again(2, 2, 3, 4))).toEqual([])
  expect(settledAgain(...again(3, 3, 4), ...again(2, 2, 3, 4))).toContain('V1 2')
  expect(settledAgain(...again(3, 2, 4))).toContain('V1 4')
  expect(settledAgain(...again(3, 2), ...again(2, 3))).toContain('V1 3')
})

test('a message that was refused and handled is counted', () => {
  expect(account(withRuns([...allRuns, runOf('V2', 9)])).refusedAndHandled).toEqual(['V2 9'])
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
  const hour = 3_600_000
  const gaps = allGaps.map((gap) => ({ ...gap, fromMs: gap.fromMs - hour, toMs: gap.toMs - hour }))
  const moved = withJournal({ gaps })
  expect(account(moved).fates.unaccounted).toBe(7)
  expect(account({ ...moved, clockOffsetsMs: [0, -hour] }).violations).toEqual(none)
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
