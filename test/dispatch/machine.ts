import {
  type BatchContext,
  createReceiver,
  dedupe,
  Discard,
  type DrainResult,
  type EventOf,
  type HandlerContext,
  type Receiver,
  Retry,
} from 'fleethook'
import { expect, vi } from 'vitest'
import { disk, type Faults, storedInbox } from '../inbox/stored-inbox.ts'
import type { FakeClock } from './fake-clock.ts'
import { stepClock } from './step-clock.ts'

/** How a handler ends: at once, some microtasks later, or when the test says so. */
export type Ending = 'done' | 'throws' | 'resolves' | 'rejects' | 'waits' | 'retries' | 'discards'

export interface Configuration {
  readonly durable: boolean
  readonly ack: 'default' | 'handled' | 'received'
  readonly concurrency: number
  readonly attempts: number
  readonly pendingMessages: number
  readonly endings: readonly Ending[]
  /** Whether each step of the inbox waits until the test says so. */
  readonly slowInbox: boolean
  /** A handler for batches of the messages that have a `Soc`. */
  readonly batch: { readonly size: number; readonly withinMs: number } | undefined
  readonly dedupe: boolean
}

export type Action =
  | { readonly kind: 'post'; readonly vins: readonly string[] }
  | { readonly kind: 'repeat'; readonly which: number }
  | { readonly kind: 'end'; readonly which: number; readonly well: boolean }
  | { readonly kind: 'inbox'; readonly which: number; readonly well: boolean }
  | { readonly kind: 'advance'; readonly ms: number }
  | { readonly kind: 'microtasks'; readonly count: number }
  | { readonly kind: 'task' }
  | { readonly kind: 'replay' }
  | { readonly kind: 'crash' }
  | { readonly kind: 'drain'; readonly deadlineMs: number }

const handlers = ['one', 'two'] as const
const timeoutMs = 400

interface Run {
  readonly ids: readonly string[]
  readonly name: string
  readonly end: (well: boolean) => void
}

/** A message as the model knows it. `number` grows with arrival and is the message's `Odometer`. */
interface Message {
  readonly number: number
  readonly vin: string
  status: number | undefined
}

/** What the model knows about the delivery of one message. A crash and each replay start a new record. */
interface Passage {
  readonly number: number
  readonly vin: string
  /** Those that are for it. */
  readonly handlers: readonly string[]
  readonly generation: number
  readonly succeeded: Set<string>
  /** The number of runs of each message in this process. */
  readonly attempts: Map<string, number>
  /** Messages whose attempts have all failed. */
  readonly exhausted: Set<string>
  dead: boolean
}

/** Runs everything that needs neither a timer nor the clock. */
export const microtasks = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** Runs the handlers that are due in tasks of their own. */
async function task(): Promise<void> {
  await microtasks()
  vi.advanceTimersByTime(1)
  await microtasks()
}

/** A receiver, and the conditions that must hold at every moment. Needs a fake `setTimeout`. */
export function machine(configuration: Configuration): {
  act(action: Action): Promise<void>
  finish(): Promise<void>
} {
  const {
    durable,
    concurrency,
    attempts,
    pendingMessages,
    endings,
    slowInbox,
    batch,
    dedupe: hasDedupe,
  } = configuration
  const clock: FakeClock = stepClock(task)
  const on = disk()
  const isLostWhenDead = configuration.ack === 'handled' && !durable
  const messages = new Map<number, Message>()
  let passages = new Map<string, Passage>()
  let latest = new Map<string, Passage>()
  const over: Passage[] = []
  let runs: Run[] = []
  let steps: { go: (well: boolean) => void }[] = []
  let generation = 0
  let ended = 0
  let finishing = false
  let missed = 0
  /** Messages that were given up while an answer waited for them, and whose dead letters do not survive. */
  let givenUp = 0
  let repeated = 0
  let faulty = 0
  let drained: DrainResult | undefined
  let draining: Promise<unknown> | undefined
  let handledBeforeDrain = 0
  let receiver = start()

  function start(): Receiver {
    const alive = generation
    const wait = (): Promise<void> | void => {
      if (alive !== generation) return new Promise(() => {})
      if (!slowInbox || finishing) return undefined
      return new Promise((resolve, reject) =>
        steps.push({ go: (well) => (well ? resolve() : reject(new Error('EIO'))) }),
      )
    }
    const faults: Faults = { put: wait, claim: wait, settle: wait, reschedule: wait, deadLetter: wait }
    const silent = (): void => {}
    const ack = configuration.ack === 'default' ? {} : { ack: configuration.ack }
    const made = createReceiver({
      ...{ secret: false, clock, concurrency, timeoutMs, ...ack },
      log: { debug: silent, info: silent, warn: silent, error: silent },
      retry: { attempts, minMs: 100, maxMs: 200 },
      limits: { pendingMessages },
      ...(hasDedupe ? { parts: [dedupe({ withinMs: 1_000_000 })] } : {}),
      ...(durable ? { inbox: storedInbox(on, faults) } : {}),
      observe: {
        dead({ id, event, error }) {
          if (alive !== generation) return
          const passage = passages.get(id)
          if (passage === undefined) {
            // Earlier processes handed it out this many times, and this process did not.
            observe(() =>
              expect({ error, generation }).toMatchObject({ error: expect.stringContaining('processes ended') }),
            )
            // When the inbox fails while the message is handled, the message is handed out once more.
            observe(() => expect(generation + faulty).toBeGreaterThanOrEqual(3))
            if (event.topic === 'data') buried.add(Number(event.data.Odometer))
            return
          }
          observe(() => expect(passage.exhausted.size, `${passage.number} died too early`).toBeGreaterThan(0))
          observe(() => expect(ordinaryDone(passage)).toBe(true))
          passage.dead = true
          if (isLostWhenDead && !outOfOrder.has(passage.number)) givenUp += 1
          finished(id, passage)
        },
      },
    })
    for (const name of handlers) {
      made.on('data', (event, context) => {
        if (alive !== generation) return new Promise(() => {})
        // A broken condition must not look like a handler that fails.
        const ending = observe(() => run(name, event, context))
        return ending === undefined ? undefined : ending()
      })
    }
    if (batch !== undefined) {
      made.batch('data', { ...batch, fields: ['Soc'] }, (events, context) => {
        if (alive !== generation) return new Promise(() => {})
        const ending = observe(() => runBatch(events, context))
        return ending === undefined ? undefined : ending()
      })
    }
    made.on('gap', (gap) => void (missed += alive === generation ? gap.missed : 0))
    void made.open()
    return made
  }

  function observe<T>(look: () => T): T | undefined {
    try {
      return look()
    } catch (error) {
      failures.push(error)
      return undefined
    }
  }

  function finished(id: string, passage: Passage): void {
    passages.delete(id)
    over.push(passage)
  }

  const ordinaryDone = ({ succeeded, exhausted }: Passage): boolean =>
    handlers.every((name) => succeeded.has(name) || exhausted.has(name))
  const isComplete = ({ handlers: wanted, succeeded }: Passage): boolean => wanted.every((name) => succeeded.has(name))

  function run(name: string, event: EventOf<'data'>, { delivery, signal }: HandlerContext): () => unknown {
    const { id } = delivery
    const number = Number(event.data.Odometer)
    const { vin } = event
    const isGathered = batch !== undefined && event.data.Soc !== undefined
    let passage = passages.get(id)
    if (passage === undefined) {
      const before = latest.get(vin)
      if (before !== undefined && !delivery.replayed) {
        const inOneBatch = isGathered && before.handlers.includes('batch') && ordinaryDone(before)
        if (!inOneBatch) expect(over, `${vin} ${number} started before ${before.number} was over`).toContain(before)
        if (!outOfOrder.has(before.number) && !outOfOrder.has(number)) expect(number).toBeGreaterThan(before.number)
      }
      if (hasDedupe && !delivery.replayed) {
        const same = over.filter((other) => other.number === number && other.generation === generation)
        expect(same.filter((other) => isComplete(other))).toEqual([])
      }
      passage = {
        ...{ number, vin, generation, dead: false },
        ...{ succeeded: new Set<string>(), attempts: new Map<string, number>(), exhausted: new Set<string>() },
        handlers: isGathered ? [...handlers, 'batch'] : handlers,
      }
      if (delivery.replayed) outOfOrder.add(number)
      passages.set(id, passage)
      latest.set(vin, passage)
    }
    const { succeeded } = passage
    expect(succeeded, `handler ${name} of ${vin} ${number} has succeeded before`).not.toContain(name)
    expect(passage.exhausted, `handler ${name} of ${vin} ${number} has had its attempts`).not.toContain(name)
    expect(messages.get(number)?.vin).toBe(vin)
    const attempt = (passage.attempts.get(name) ?? 0) + 1
    passage.attempts.set(name, attempt)
    expect(delivery.attempt).toBeGreaterThanOrEqual(attempt)
    expect(delivery.attempt).toBeLessThanOrEqual(attempts)
    const noted = on.next.get(id)
    // The record of an earlier process, or the one of this process, is right.
    expect(delivery.attempt).toBeGreaterThan(noted?.attempts ?? 0)
    expect(clock.now()).toBeGreaterThanOrEqual(noted?.notBefore ?? 0)
    expect(runs.filter(({ ids }) => ids.includes(id))).toEqual([])
    const lane = new Set([...passages].filter(([, { vin: other }]) => other === vin).map(([key]) => key))
    expect(runs.filter((other) => other.name !== 'batch' && other.ids.some((key) => lane.has(key)))).toEqual([])
    return begin({ ids: [id], name, of: [passage], attempts: [delivery.attempt], signal })
  }

  function runBatch(events: readonly EventOf<'data'>[], { deliveries, signal }: BatchContext): () => unknown {
    expect(events.length).toBeLessThanOrEqual(batch?.size ?? 0)
    expect(events.length).toBe(deliveries.length)
    const ids = deliveries.map(({ id }) => id)
    expect(new Set(ids).size).toBe(ids.length)
    expect(runs.filter((other) => other.ids.some((id) => ids.includes(id)))).toEqual([])
    const of = ids.map((id, at): Passage => {
      const passage = passages.get(id)
      if (passage === undefined) throw new Error(`${id} is gathered and was not handled before`)
      expect(passage.number).toBe(Number(events[at]?.data.Odometer))
      expect(ordinaryDone(passage), `${passage.number} is gathered too early`).toBe(true)
      expect(passage.succeeded).not.toContain('batch')
      expect(passage.exhausted).not.toContain('batch')
      expect(deliveries[at]?.attempt).toBeLessThanOrEqual(attempts)
      return passage
    })
    for (const [at, { vin }] of of.entries()) {
      // Earlier messages of the vehicle that were handed out and are not settled come first in the same batch.
      const known = [...passages.values()].filter((other) => other.vin === vin)
      const before = known.slice(0, known.indexOf(of[at] as Passage))
      for (const other of before) expect(of.slice(0, at), `${other.number} is passed over`).toContain(other)
    }
    return begin({ ids, name: 'batch', of, attempts: deliveries.map(({ attempt }) => attempt), signal })
  }

  interface Begun {
    readonly ids: readonly string[]
    readonly name: string
    readonly of: readonly Passage[]
    /** The attempt of each message. */
    readonly attempts: readonly number[]
    readonly signal: AbortSignal
  }

  function begin({ ids, name, of, attempts: made, signal }: Begun): () => unknown {
    expect(runs.length).toBeLessThan(concurrency)
    expect(receiver.stats().running).toBeLessThanOrEqual(concurrency)
    const succeed = (): void => {
      for (const [at, passage] of of.entries()) {
        passage.succeeded.add(name)
        if (isComplete(passage)) finished(ids[at] ?? '', passage)
      }
    }
    /** The messages of a batch that failed are tried one by one, and its attempt does not count. */
    const fail = (asked = false): void => {
      if (of.length > 1 && !asked) return
      for (const [at, { exhausted }] of of.entries()) if ((made[at] ?? 0) >= attempts) exhausted.add(name)
    }
    const ending = finishing ? 'done' : (endings[ended % endings.length] ?? 'done')
    ended += 1
    return () => {
      if (ending === 'done') return succeed()
      if (ending === 'discards') {
        succeed()
        throw new Discard('no')
      }
      if (ending === 'retries') {
        fail(true)
        throw new Retry(130)
      }
      if (ending === 'throws') {
        fail()
        throw new Error('no')
      }
      return new Promise<void>((resolve, reject) => {
        const active: Run = {
          ids,
          name,
          end(well) {
            if (!runs.includes(active)) return
            runs = runs.filter((other) => other !== active)
            if (well) {
              succeed()
              resolve()
            } else {
              fail()
              reject(new Error('no'))
            }
          },
        }
        runs.push(active)
        signal.addEventListener('abort', () => {
          if (!runs.includes(active)) return
          runs = runs.filter((other) => other !== active)
          fail()
        })
        if (ending !== 'waits') void Promise.resolve().then(() => active.end(ending === 'resolves'))
      })
    }
  }

  /** Numbers of messages that were replayed, or posted more than once. */
  const outOfOrder = new Set<number>()
  const buried = new Set<number>()
  const failures: unknown[] = []

  async function post(vins: readonly string[]): Promise<void> {
    const posted = vins.map((vin): Message => {
      const message: Message = { number: messages.size + 1, vin, status: undefined }
      messages.set(message.number, message)
      return message
    })
    await send(posted)
  }

  /** The same once more. */
  async function repeat(which: number): Promise<void> {
    const message = [...messages.values()][which % Math.max(1, messages.size)]
    // A refused copy is no loss, but would look like the loss of the first message.
    if (!hasDedupe || message?.status !== 200) return
    outOfOrder.add(message.number)
    repeated += 1
    await receiver.accept({ authorization: undefined, body: bodyOf([message]) })
  }

  /** Bodies with more messages than the inbox has room for. */
  let unread = 0

  async function send(posted: readonly Message[]): Promise<void> {
    const alive = generation
    const body = bodyOf(posted)
    const { status } = await receiver.accept({ authorization: undefined, body })
    if (alive !== generation) return
    for (const message of posted) message.status = status
    if (status === 413) unread += 1
    if (status === 200 && configuration.ack === 'handled' && draining === undefined) {
      for (const { number } of posted.filter((message) => !outOfOrder.has(message.number))) {
        const [id] = [...passages].find(([, passage]) => passage.number === number) ?? []
        expect(id, `${number} was answered and is not over`).toBeUndefined()
        const dead = isLostWhenDead && over.find((passage) => passage.number === number)?.dead === true
        expect(dead, `${number} was given up and answered with 200`).toBe(false)
      }
    }
  }

  function bodyOf(posted: readonly Message[]): readonly object[] {
    return posted.map(({ vin, number }) => ({
      ...{ vin, createdAt: '2024-02-24T04:58:44Z' },
      data: { Odometer: number, ...(number % 3 === 0 ? {} : { Soc: 50 }) },
    }))
  }

  /** Everything that only the process had is lost. The disk keeps the rest. */
  function crash(): void {
    if (!durable || draining !== undefined) return
    const kept = new Set([...on.messages.values(), ...on.dead.values()].flatMap(numbersIn))
    const isOver = new Set([...over.map(({ number }) => number), ...buried])
    for (const { number, status } of messages.values()) {
      if (status === 200 && configuration.ack !== 'received')
        expect(kept.has(number) || isOver.has(number), `${number} was acknowledged and is gone`).toBe(true)
    }
    generation += 1
    passages = new Map()
    latest = new Map()
    runs = []
    steps = []
    receiver = start()
  }

  async function replay(): Promise<void> {
    const alive = generation
    const [letter] = await Array.fromAsync(receiver.deadLetters.list())
    if (letter === undefined || alive !== generation) return
    await receiver.deadLetters.replay(letter.id).catch(() => {})
  }

  function drain(deadlineMs: number): void {
    if (draining !== undefined) return
    const { handled, deadLettered } = receiver.stats()
    handledBeforeDrain = handled + deadLettered
    draining = receiver.drain({ deadlineMs }).then((result) => (drained = result))
  }

  async function settleDown(): Promise<void> {
    for (let round = 0; round < 2000; round += 1) {
      for (const step of steps.splice(0)) step.go(true)
      for (const active of [...runs]) active.end(true)
      await task()
      const quiet = runs.length === 0 && steps.length === 0
      if (quiet && (drained !== undefined || (draining === undefined && receiver.stats().lanes === 0))) return
      if (quiet) await clock.advance(100)
    }
    throw new Error(`It never ends: ${JSON.stringify(receiver.stats())}`)
  }

  /** The number of messages from the wire that are still in the inbox when no lane has any. */
  function waiting(): number {
    return durable ? [...on.messages.values()].filter((text) => text.includes('"kind":"wire"')).length : 0
  }

  function check(): void {
    for (const failure of failures) throw failure
    const { running, lanes, pending, openGaps, ...stats } = receiver.stats()
    expect(running).toBeLessThanOrEqual(concurrency)
    expect(pending.messages).toBeLessThanOrEqual(pendingMessages)
    if (generation > 0 || lanes > 0 || openGaps > 0 || stats.refused['inbox_full'] !== undefined || slowInbox) return
    const taken = stats.received + stats.recovered + stats.replayed
    expect(taken).toBe(stats.handled + stats.deadLettered + stats.duplicates + stats.lost + waiting())
  }

  async function act(action: Action): Promise<void> {
    if (action.kind === 'post') void post(action.vins).catch((error: unknown) => failures.push(error))
    else if (action.kind === 'repeat') void repeat(action.which).catch((error: unknown) => failures.push(error))
    else if (action.kind === 'end') runs[action.which % Math.max(1, runs.length)]?.end(action.well)
    else if (action.kind === 'inbox') {
      if (!action.well) faulty += 1
      steps.splice(action.which % Math.max(1, steps.length), 1)[0]?.go(action.well)
    } else if (action.kind === 'advance') await clock.advance(action.ms)
    else if (action.kind === 'task') await task()
    else if (action.kind === 'replay') await Promise.race([replay(), microtasks()])
    else if (action.kind === 'crash') await microtasks().then(crash)
    else if (action.kind === 'drain') drain(action.deadlineMs)
    else for (let n = 0; n < action.count; n += 1) await Promise.resolve()
    check()
  }

  return {
    act,

    async finish() {
      finishing = draining === undefined
      await settleDown()
      check()
      if (receiver.stats().openGaps > 0 && draining === undefined) {
        // A gap is emitted with the next message that the inbox takes.
        await act({ kind: 'post', vins: ['Z'] })
        await settleDown()
      }
      const { received, recovered, replayed, handled, deadLettered, duplicates, lost, pending } = receiver.stats()
      const accepted = [...messages.values()].filter(({ status }) => status === 200)
      const known = received + recovered + replayed
      const accounted = handled + deadLettered + duplicates + lost + waiting()
      // A drain can begin before all messages of an earlier process were read from the inbox.
      if (generation > 0 && drained !== undefined) expect(known).toBeLessThanOrEqual(accounted)
      else expect(known).toBe(accounted)
      if (drained === undefined) {
        expect({ pending: pending.messages, gaps: receiver.stats().openGaps }).toEqual({ pending: 0, gaps: 0 })
        expect(passages.size).toBe(0)
        // Every acknowledged message went through all of its handlers or is a dead letter.
        const through = over.filter((passage) => passage.dead || isComplete(passage))
        const numbers = new Set([...through.map(({ number }) => number), ...buried])
        for (const { number } of accepted.filter(() => configuration.ack !== 'received'))
          expect(numbers, `${number} was acknowledged and never handled`).toContain(number)
        if (generation === 0 && repeated === 0) {
          expect(new Set(through.map(({ number }) => number)).size).toBe(received - lost)
          const refused = [...messages.values()].filter(({ status }) => status === 503)
          expect(missed).toBe(refused.length + unread + lost + givenUp)
        }
      } else {
        // A drain waits a second for a slow inbox. A message that settles later was reported as left, and still
        // counts.
        const notedLater = handled + deadLettered - handledBeforeDrain - drained.handled
        expect(notedLater).toBeGreaterThanOrEqual(0)
        expect(notedLater).toBeLessThanOrEqual(slowInbox ? drained.left : 0)
        if (!durable) expect(pending.messages).toBe(0)
        else if (configuration.ack !== 'received') expect(lost).toBe(0)
      }
      if (generation === 0) expect(clock.timers()).toEqual([])
      await clock.advance(100_000)
      expect(clock.timers()).toEqual([])
      check()
    },
  }
}

function numbersIn(text: string): readonly number[] {
  return [...text.matchAll(/Odometer\\+":(\d+)/g)].map(([, number]) => Number(number))
}
