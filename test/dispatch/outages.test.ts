import * as fc from 'fast-check'
import {
  type BatchContext,
  createReceiver,
  type Delivery,
  Discard,
  type EventOf,
  type HandlerContext,
  Retry,
} from 'fleethook'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { inForm } from '../form.ts'
import { placed, sharedInbox } from '../inbox/shared-inbox.ts'
import { stepClock } from './step-clock.ts'

// Handlers start in timer tasks. Here the test decides when such a task runs.
beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }))
afterEach(() => void vi.useRealTimers())

const vins = ['A', 'B', 'C', 'D', 'E', 'F', 'G'] as const
const names = ['one', 'two', 'batch'] as const
type Name = (typeof names)[number]
/** What a handler does: `bad` fails for some vehicles. */
type Mode = 'works' | 'fails' | 'bad' | 'waits' | 'retries' | 'discards'

interface Configuration {
  /** Messages come from an inbox that processes share, and can leave. Otherwise they are posted, with an inbox in memory. */
  readonly shared: boolean
  readonly slowInbox: boolean
  readonly concurrency: number
  readonly attempts: number
  readonly batch: { readonly size: number; readonly withinMs: number } | undefined
}

type Action =
  | { readonly kind: 'arrive'; readonly vins: readonly string[] }
  | { readonly kind: 'leave'; readonly vins: readonly string[] }
  | { readonly kind: 'return' }
  | { readonly kind: 'task' }
  | { readonly kind: 'turn'; readonly name: Name; readonly mode: Mode }
  | { readonly kind: 'end'; readonly which: number; readonly well: boolean }
  | { readonly kind: 'inbox'; readonly which: number }
  | { readonly kind: 'advance'; readonly ms: number }
  | { readonly kind: 'microtasks'; readonly count: number }

interface Message {
  readonly number: number
  readonly vin: string
  /** Another process has it. */
  isAway: boolean
  isOver: boolean
  succeeded: Set<Name>
  /** The attempts in which a handler failed: those of a batch have numbers of their own. */
  failed: Set<string>
}

interface Run {
  readonly name: Name
  readonly of: Message[]
  readonly isTry: boolean
  readonly end: (well: boolean) => void
}

const microtasks = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

async function task(): Promise<void> {
  await microtasks()
  vi.advanceTimersByTime(1)
  await microtasks()
}

/** A receiver, and what must hold at every moment. */
async function machine({ shared, slowInbox, concurrency, attempts, batch }: Configuration): Promise<{
  act(action: Action): Promise<void>
  finish(): Promise<void>
}> {
  const clock = stepClock(task)
  const inbox = sharedInbox()
  const messages: Message[] = []
  const modes: Record<Name, Mode> = { one: 'works', two: 'works', batch: 'works' }
  const broken: unknown[] = []
  let runs: Run[] = []
  const steps: (() => void)[] = []
  let isFinishing = false
  let left = 0
  const ofDelivery = new Map<string, Message>()
  inbox.step = () => (slowInbox && !isFinishing ? new Promise((resolve) => steps.push(resolve)) : undefined)

  const silent = (): void => {}
  const receiver = createReceiver({
    ...{ secret: false, clock, concurrency, timeoutMs: 100_000_000, retry: { attempts, minMs: 100, maxMs: 200 } },
    log: { debug: silent, info: silent, warn: silent, error: silent },
    ...(shared ? { inbox: inbox.inbox } : {}),
    observe: {
      settled: ({ id, outcome }) =>
        observe(() => {
          const message = ended(id)
          expect({ number: message.number, outcome, succeeded: [...message.succeeded].toSorted() }).toEqual({
            ...{ number: message.number, outcome: 'handled' },
            succeeded: (batch === undefined ? ['one', 'two'] : [...names]).toSorted(),
          })
        }),
      dead: ({ id }) =>
        observe(() => {
          const message = ended(id)
          expect(isSpent(message) || isSpent(message, 'batch'), `${message.number} died early`).toBe(true)
        }),
    },
  })
    .on('data', function one(event, context) {
      return handle('one', [event], context, [context.delivery])
    })
    .on('data', function two(event, context) {
      return handle('two', [event], context, [context.delivery])
    })
  if (batch !== undefined) {
    receiver.batch('data', batch, function batch(events, context) {
      return handle('batch', events, context, context.deliveries)
    })
  }
  await receiver.open()

  function observe(look: () => void): void {
    try {
      look()
    } catch (error) {
      broken.push(error)
    }
  }

  function ended(id: string): Message {
    const message = ofDelivery.get(id)
    if (message === undefined) throw new Error(`Nobody has handled ${id}.`)
    expect(message, `${message.number} ended twice`).toMatchObject({ isOver: false, isAway: false })
    message.isOver = true
    return message
  }

  const isHere = (message: Message): boolean => !message.isOver && !message.isAway
  const isSpent = ({ failed }: Message, by = 'on'): boolean =>
    [...failed].filter((attempt) => attempt.startsWith(by)).length >= attempts
  const isGathered = (message: Message): boolean =>
    batch !== undefined && (isSpent(message) || (message.succeeded.has('one') && message.succeeded.has('two')))

  function handle(
    name: Name,
    events: readonly EventOf<'data'>[],
    { signal }: HandlerContext | BatchContext,
    deliveries: readonly Delivery[],
  ): unknown {
    const of = events.map(({ data }, at): Message => {
      const message = messages[Number(data.Odometer) - 1] as Message
      ofDelivery.set(deliveries[at]?.id ?? '', message)
      return message
    })
    const isTry = receiver.stats().paused.some(({ handler }) => handler === name)
    observe(() => {
      for (const [at, message] of of.entries()) {
        const what = `${name} of ${message.vin}${message.number}`
        expect(isHere(message), `${what} runs, and is over or away`).toBe(true)
        expect(message.succeeded, `${what} has succeeded before`).not.toContain(name)
        for (const earlier of messages.slice(0, message.number - 1)) {
          if (earlier.vin !== message.vin || !isHere(earlier)) continue
          const isBefore = name === 'batch' ? of.slice(0, at).includes(earlier) : isGathered(earlier)
          expect(isBefore, `${what} overtakes ${earlier.number}`).toBe(true)
        }
        const beside = runs.filter(
          (other) =>
            other.of.includes(message) ||
            (name !== 'batch' && other.name !== 'batch' && other.of.some(({ vin }) => vin === message.vin)),
        )
        expect(beside, `${what} runs beside another run`).toEqual([])
      }
      expect(runs.length).toBeLessThan(concurrency)
      if (isTry) expect(runs.filter((other) => other.isTry && other.name === name)).toEqual([])
    })

    const succeed = (): void => of.forEach((message) => message.succeeded.add(name))
    const made = new Map(of.map((message, at) => [message, deliveries[at]?.attempt]))
    const noteFailure = (message: Message): void =>
      void message.failed.add(`${name === 'batch' ? 'batch' : 'on'} ${String(made.get(message))}`)
    const fail = (error: unknown): unknown => {
      for (const message of of) noteFailure(message)
      return error
    }
    const mode = isFinishing ? 'works' : modes[name]
    if (mode === 'fails' || (mode === 'bad' && of.some(({ vin }) => vin < 'D'))) throw fail(new Error('no'))
    if (mode === 'retries') throw fail(new Retry(130))
    if (mode !== 'waits') {
      succeed()
      if (mode === 'discards') throw new Discard('no')
      return undefined
    }
    return new Promise<void>((resolve, reject) => {
      const run: Run = {
        ...{ name, of: [...of], isTry },
        end(well) {
          runs = runs.filter((other) => other !== run)
          // Of a batch, a part can have left.
          if (well) for (const message of run.of) message.succeeded.add(name)
          else for (const message of run.of) noteFailure(message)
          if (well) resolve()
          else reject(new Error('no'))
        },
      }
      runs.push(run)
      signal.addEventListener('abort', () => {
        observe(() => expect(run.of, 'a run is aborted although its messages are here').toEqual([]))
        runs = runs.filter((other) => other !== run)
      })
    })
  }

  function arrive(...of: readonly string[]): void {
    const arrived = of.map((vin): Message => {
      const isAway = messages.some((other) => other.vin === vin && other.isAway)
      const message: Message = {
        ...{ number: messages.length + 1, vin, isAway, isOver: false, succeeded: new Set(), failed: new Set() },
      }
      messages.push(message)
      return message
    })
    if (shared) hand(arrived.filter(({ isAway }) => !isAway))
    else {
      const body = arrived.map(({ vin, number }) => JSON.parse(placed(vin, number).text) as object)
      void receiver
        .accept({ authorization: undefined, body })
        .then(({ status }) => observe(() => expect(status).toBe(200)))
    }
  }

  function hand(given: readonly Message[]): void {
    if (given.length > 0) inbox.handOver(...given.map(({ vin, number }) => placed(vin, number)))
  }

  function leave(leaving: readonly string[]): void {
    if (!shared) return
    for (const message of messages) {
      if (!leaving.includes(message.vin) || !isHere(message)) continue
      // Its handlers are done, and the inbox has settled it already.
      if (inbox.over.includes(placed(message.vin, message.number).id)) continue
      Object.assign(message, { isAway: true, succeeded: new Set(), failed: new Set() })
      left += 1
      for (const run of runs) if (run.of.includes(message)) run.of.splice(run.of.indexOf(message), 1)
    }
    inbox.takeAway(...leaving)
  }

  function comeBack(): void {
    const back = messages.filter(({ isAway }) => isAway)
    for (const message of back) message.isAway = false
    hand(back)
  }

  function check(isQuiet = true): void {
    for (const failure of broken) throw failure
    const { running, received, recovered, handled, deadLettered, lost, handedOver, pending } = receiver.stats()
    expect(running).toBeLessThanOrEqual(concurrency)
    expect(handedOver).toBe(left)
    expect(lost).toBe(0)
    // A dead letter leaves the inbox a moment before it is counted.
    if (isQuiet && !slowInbox) expect(received + recovered).toBe(handled + deadLettered + handedOver + pending.messages)
  }

  async function act(action: Action): Promise<void> {
    if (action.kind === 'arrive') arrive(...action.vins)
    else if (action.kind === 'leave') leave(action.vins)
    else if (action.kind === 'return') comeBack()
    else if (action.kind === 'turn') modes[action.name] = action.mode
    else if (action.kind === 'end') runs[action.which % Math.max(1, runs.length)]?.end(action.well)
    else if (action.kind === 'inbox') steps.splice(action.which % Math.max(1, steps.length), 1)[0]?.()
    else if (action.kind === 'advance') await clock.advance(action.ms)
    else if (action.kind === 'task') await task()
    else for (let n = 0; n < action.count; n += 1) await Promise.resolve()
    check(action.kind === 'task' || action.kind === 'advance')
  }

  return {
    act,

    async finish() {
      isFinishing = true
      comeBack()
      // Without a message, a paused handler is not tried.
      arrive(...vins)
      // A paused handler is tried again after a minute at most.
      for (let second = 0; second < 2 || (second < 300 && receiver.stats().lanes > 0); second += 1) {
        for (const step of steps.splice(0)) step()
        for (const run of [...runs]) run.end(true)
        await clock.advance(1_000)
        check()
      }
      const { lanes, running, paused, pending, received, recovered, handled, deadLettered, handedOver } =
        receiver.stats()
      expect({ lanes, running, paused, pending: pending.messages }).toEqual({
        lanes: 0,
        running: 0,
        paused: [],
        pending: 0,
      })
      expect(messages.filter(({ isOver }) => !isOver)).toEqual([])
      expect(handled + deadLettered).toBe(messages.length)
      expect(received + recovered).toBe(handled + deadLettered + handedOver)
      expect(clock.timers()).toEqual([])
    },
  }
}

const configuration: fc.Arbitrary<Configuration> = fc.record({
  shared: fc.boolean(),
  slowInbox: fc.boolean(),
  concurrency: fc.constantFrom(1, 2, 8),
  attempts: fc.constantFrom(1, 3, 1_000),
  batch: fc.option(fc.record({ size: fc.integer({ min: 1, max: 6 }), withinMs: fc.constantFrom(0, 50, 150) }), {
    nil: undefined,
    freq: 2,
  }),
})

const some = fc.oneof(
  fc.constant(vins),
  fc.array(fc.constantFrom(...vins), { minLength: 1, maxLength: 4 }).map((list) => [...list]),
)
const which = fc.nat(5)
const mode = fc.constantFrom<Mode>('works', 'works', 'fails', 'fails', 'bad', 'waits', 'waits', 'retries', 'discards')
const action: fc.Arbitrary<Action> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('arrive' as const), vins: some }) },
  { weight: 5, arbitrary: fc.record({ kind: fc.constant('turn' as const), name: fc.constantFrom(...names), mode }) },
  {
    weight: 6,
    arbitrary: fc.record({ kind: fc.constant('end' as const), which, well: fc.constantFrom(true, true, false) }),
  },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('inbox' as const), which }) },
  {
    weight: 4,
    arbitrary: fc.record({ kind: fc.constant('advance' as const), ms: fc.constantFrom(0, 60, 200, 1_000, 5_000) }),
  },
  {
    weight: 4,
    arbitrary: fc.record({ kind: fc.constant('microtasks' as const), count: fc.integer({ min: 1, max: 6 }) }),
  },
  { weight: 6, arbitrary: fc.constant({ kind: 'task' } as const) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('leave' as const), vins: some }) },
  { weight: 2, arbitrary: fc.constant({ kind: 'return' } as const) },
)

const arrives = (of: string): Action => ({ kind: 'arrive', vins: [...of] })
const turns = (name: Name, to: Mode): Action => ({ kind: 'turn', name, mode: to })
const passes = (ms: number): Action => ({ kind: 'advance', ms })
const aMoment: Action = { kind: 'microtasks', count: 0 }
const aTask: Action = { kind: 'task' }
const endsWell: Action = { kind: 'end', which: 0, well: true }
const leaves = (of: string): Action => ({ kind: 'leave', vins: [...of] })
const returns: Action = { kind: 'return' }
const anAnswer: Action = { kind: 'inbox', which: 0 }

const usual: Configuration = { shared: true, slowInbox: false, concurrency: 2, attempts: 3, batch: undefined }
const slow: Configuration = { ...usual, slowInbox: true, attempts: 1 }
const batches = (size: number): Configuration => ({ ...usual, batch: { size, withinMs: 150 } })
/** The messages of A leave in each state that they can be in. All of them come back at the end. */
const left: readonly [Configuration, Action[]][] = [
  // They have not started, or their claim is under way.
  [usual, [arrives('AAA'), leaves('A'), aTask, returns]],
  [slow, [arrives('AAAB'), aTask, leaves('A'), anAnswer, returns, aTask]],
  // They run, wait behind one that runs, or rest.
  [usual, [turns('one', 'waits'), arrives('AAA'), aTask, leaves('A'), turns('one', 'works'), aTask, returns]],
  [usual, [turns('one', 'fails'), arrives('AAA'), aTask, leaves('A'), turns('one', 'works'), aTask, returns]],
  // They are gathered, in a batch that runs, beside others or not, in one that failed, or behind one.
  [batches(5), [arrives('AAA'), aTask, leaves('A'), aTask, returns]],
  [batches(2), [turns('batch', 'waits'), arrives('AAA'), aTask, leaves('A'), turns('batch', 'works'), aTask, returns]],
  [batches(2), [turns('batch', 'waits'), arrives('AB'), aTask, leaves('A'), aTask, endsWell, aTask, returns]],
  [batches(3), [turns('batch', 'fails'), arrives('AAA'), aTask, leaves('A'), turns('batch', 'works'), aTask, returns]],
  [batches(1), [turns('batch', 'waits'), arrives('AAA'), aTask, leaves('A'), turns('batch', 'works'), aTask, returns]],
  // They are being settled, or become dead letters.
  [slow, [arrives('AB'), aTask, anAnswer, anAnswer, aTask, leaves('AB'), anAnswer, anAnswer, aTask, returns]],
  [slow, [turns('one', 'fails'), arrives('AB'), anAnswer, anAnswer, aTask, leaves('AB'), anAnswer, anAnswer, aTask]],
  // Their handler is paused, for them or while it is tried with one of them.
  [usual, [turns('one', 'fails'), arrives('CDEFG'), aTask, arrives('AAA'), passes(1_000), leaves('A'), aTask, returns]],
  [usual, [turns('one', 'fails'), arrives('CDEFG'), aTask, turns('one', 'waits'), arrives('A'), aTask, leaves('A')]],
]
/** A paused batch handler would have been tried with a message that gathered behind one of its vehicle which had to wait. */
const pausedBatch: readonly [Configuration, Action[]] = [
  { shared: false, slowInbox: false, concurrency: 1, attempts: 1, batch: { size: 2, withinMs: 0 } },
  [
    turns('two', 'waits'),
    arrives('E'),
    aTask,
    arrives('ABCDEFG'),
    arrives('A'),
    turns('two', 'works'),
    passes(0),
    turns('batch', 'fails'),
    endsWell,
    aMoment,
    aMoment,
    aMoment,
    aMoment,
    arrives('ABCDEFG'),
    endsWell,
    arrives('A'),
    aMoment,
    aMoment,
    turns('one', 'waits'),
    aTask,
    aTask,
    passes(5_000),
    turns('one', 'works'),
    passes(0),
    aMoment,
    passes(0),
    endsWell,
    arrives('ABCDEFG'),
    aMoment,
    aMoment,
    aMoment,
    endsWell,
    aTask,
    aMoment,
    endsWell,
  ],
]

/** One handler of a message runs while another one, which it found paused, works again. */
const paused: Action[] = [
  turns('one', 'fails'),
  arrives('CDEFG'),
  aTask,
  turns('one', 'waits'),
  arrives('B'),
  aTask,
  turns('two', 'waits'),
  arrives('AA'),
  aTask,
  endsWell,
  aTask,
  turns('one', 'works'),
  endsWell,
  aTask,
  endsWell,
]
const found: (readonly [Configuration, Action[]])[] = [
  pausedBatch,
  ...[true, false].map((isShared): [Configuration, Action[]] => [
    { ...usual, shared: isShared, concurrency: 8 },
    paused,
  ]),
  ...left,
]

test('in every interleaving of outages, several handlers, retries, batches and messages that leave and come back: no lane stays blocked, order per VIN, all is counted', async () => {
  await fc.assert(
    fc.asyncProperty(
      configuration,
      fc.array(action, { minLength: 20, maxLength: 80, size: 'max' }),
      async (given, actions) => {
        const { act, finish } = await machine(given)
        for (const next of actions) await act(next)
        await finish()
      },
    ),
    {
      examples: found.map(([configuration, actions]) => [configuration, actions]),
      numRuns: found.length + Number(process.env['FLEETHOOK_RUNS'] ?? inForm({ short: 60, full: 500 })),
    },
  )
}, 3_600_000)
