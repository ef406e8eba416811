import * as fc from 'fast-check'
import { afterEach, beforeEach, test, vi } from 'vitest'
import { inForm } from '../form.ts'
import { type Action, type Configuration, machine } from './machine.ts'

// Handlers start in timer tasks. Here the test decides when such a task runs.
beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }))
afterEach(() => void vi.useRealTimers())

const configuration: fc.Arbitrary<Configuration> = fc.record({
  durable: fc.boolean(),
  ack: fc.constantFrom('default', 'default', 'handled', 'received'),
  concurrency: fc.integer({ min: 1, max: 3 }),
  attempts: fc.integer({ min: 1, max: 3 }),
  pendingMessages: fc.constantFrom(2, 3, 3, 5, 100),
  endings: fc.array(
    fc.constantFrom('done', 'done', 'throws', 'resolves', 'rejects', 'waits', 'waits', 'retries', 'discards'),
    { minLength: 1 },
  ),
  slowInbox: fc.boolean(),
  batch: fc.option(fc.record({ size: fc.integer({ min: 1, max: 6 }), withinMs: fc.constantFrom(0, 50, 150) }), {
    nil: undefined,
    freq: 2,
  }),
  dedupe: fc.boolean(),
})

const which = fc.nat(5)
const well = fc.constantFrom(true, true, false)
const vin = fc.constantFrom('A', 'A', 'B', 'C')
const action: fc.Arbitrary<Action> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({ kind: fc.constant('post' as const), vins: fc.array(vin, { minLength: 1, maxLength: 3 }) }),
  },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('end' as const), which, well }) },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('inbox' as const), which, well }) },
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constant('advance' as const), ms: fc.constantFrom(0, 60, 100, 200, 450) }),
  },
  {
    weight: 5,
    arbitrary: fc.record({ kind: fc.constant('microtasks' as const), count: fc.integer({ min: 1, max: 6 }) }),
  },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('task' as const) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('repeat' as const), which: fc.nat(60) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('replay' as const) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('crash' as const) }) },
)
const end: fc.Arbitrary<readonly Action[]> = fc.oneof(
  fc.constant([]),
  fc
    .tuple(
      fc.record({ kind: fc.constant('drain' as const), deadlineMs: fc.constantFrom(0, 50, 1000, 100_000) }),
      fc.array(action, { maxLength: 10 }),
    )
    .map(([drain, actions]) => [drain, ...actions]),
)

test('in every interleaving of accepting, handling, failing, time, crashes and a drain: in order per VIN, nothing twice, nothing lost, within the limits', async () => {
  await fc.assert(
    fc.asyncProperty(
      configuration,
      fc.array(action, { minLength: 20, maxLength: 80, size: 'max' }),
      end,
      async (given, actions, last) => {
        const { act, finish } = machine(given)
        for (const next of [...actions, ...last]) await act(next)
        await finish()
      },
    ),
    { includeErrorInReport: true, numRuns: Number(process.env['FLEETHOOK_RUNS'] ?? inForm({ short: 100, full: 500 })) },
  )
})
