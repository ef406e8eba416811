import { createReceiver, type DrainResult, type EventOf, type HandlerContext, type Receiver } from 'fleethook'
import { expect, vi } from 'vitest'
import { disk, type Faults, storedInbox } from '../inbox/stored-inbox.ts'
import type { FakeClock } from './fake-clock.ts'
import { stepClock } from './step-clock.ts'

/** How a handler ends: at once, some microtasks later, or when the test says so. */
export type Ending = 'done' | 'throws' | 'resolves' | 'rejects' | 'waits'

export interface Configuration {
  readonly durable: boolean
  readonly ack: 'default' | 'handled' | 'received'
  readonly concurrency: number
  readonly order: 'vin' | 'none'
  readonly overflow: 'refuse' | 'conflate'
  readonly attempts: number
  readonly pendingMessages: number
  readonly endings: readonly Ending[]
  /** Whether each step of the inbox waits until the test says so. */
  readonly slowInbox: boolean
}

export type Action =
  | { readonly kind: 'post'; readonly vins: readonly string[] }
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
  readonly id: string
  readonly end: (well: boolean) => void
}

/** A message as the model knows it. `number` grows with arrival and is the message's `Odometer`. */
interface Message {
  readonly number: number
  readonly vin: string
  status: number | undefined
}

/** What the model knows of the handing over of one message: between crashes, and for each replay anew. */
interface Passage {
  readonly number: number
  readonly vin: string
  readonly stands: number
  readonly succeeded: Set<string>
  readonly attempts: Map<string, number>
  dead: boolean
}

/** Lets everything run that needs neither a timer nor the clock. */
export const microtasks = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** Lets the handlers run that are due to start in a task of their own. */
async function task(): Promise<void> {
  await microtasks()
  vi.advanceTimersByTime(1)
  await microtasks()
}

/** A receiver and what must be true of it at every moment, whatever is done to it. Wants `setTimeout` to be faked. */
export function machine(configuration: Configuration): {
  act(action: Action): Promise<void>
  finish(): Promise<void>
} {
  const { durable, concurrency, order, overflow, attempts, pendingMessages, endings, slowInbox } = configuration
  const clock: FakeClock = stepClock(task)
  const on = disk()
  const inOrder = order === 'vin' || overflow === 'conflate'
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
    const faults: Faults = { put: wait, claim: wait, settle: wait, deadLetter: wait }
    const silent = (): void => {}
    const ack = configuration.ack === 'default' ? {} : { ack: configuration.ack }
    const made = createReceiver({
      ...{ secret: false, clock, concurrency, order, overflow, timeoutMs, ...ack },
      log: { debug: silent, info: silent, warn: silent, error: silent },
      retry: { attempts, minMs: 100, maxMs: 200 },
      limits: { pendingMessages },
      ...(durable ? { inbox: storedInbox(on, faults) } : {}),
      onDeadLetter({ id }) {
        const passage = passages.get(id)
        if (alive !== generation || passage === undefined) return
        passage.dead = true
        finished(id, passage)
      },
    })
    for (const name of handlers) {
      made.on('data', (event, context) => {
        if (alive !== generation) return new Promise(() => {})
        // What does not hold must not look like a handler that fails.
        const ending = observe(() => run(name, event, context))
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

  function run(name: string, event: EventOf<'data'>, { delivery, signal }: HandlerContext): () => unknown {
    const { id } = delivery
    const number = Number(event.data.Odometer)
    const { vin } = event
    let passage = passages.get(id)
    if (passage === undefined) {
      const before = latest.get(vin)
      if (inOrder && before !== undefined && !delivery.replayed) {
        expect(over, `${vin} ${number} started before ${before.number} was over`).toContain(before)
        if (!replayedNumbers.has(before.number)) expect(number).toBeGreaterThan(before.number)
      }
      passage = {
        ...{ number, vin, stands: event.meta.conflated ?? 1 },
        ...{ succeeded: new Set<string>(), attempts: new Map<string, number>(), dead: false },
      }
      if (delivery.replayed) replayedNumbers.add(number)
      passages.set(id, passage)
      latest.set(vin, passage)
    }
    const { succeeded } = passage
    expect(succeeded, `handler ${name} of ${vin} ${number} has succeeded before`).not.toContain(name)
    expect(messages.get(number)?.vin).toBe(vin)
    const attempt = (passage.attempts.get(name) ?? 0) + 1
    passage.attempts.set(name, attempt)
    expect(attempt).toBeLessThanOrEqual(attempts)
    expect(delivery.attempt).toBeGreaterThanOrEqual(attempt)
    expect(runs.filter((other) => other.id === id)).toEqual([])
    if (inOrder) {
      const lane = new Set([...passages].filter(([, { vin: other }]) => other === vin).map(([key]) => key))
      expect(runs.filter((other) => lane.has(other.id))).toEqual([])
    }
    expect(runs.length).toBeLessThan(concurrency)
    expect(receiver.stats().running).toBeLessThanOrEqual(concurrency)

    const known = passage
    return () => end(id, name, known, signal)
  }

  function end(id: string, name: string, passage: Passage, signal: AbortSignal): unknown {
    const succeed = (): void => {
      passage.succeeded.add(name)
      if (passage.succeeded.size === handlers.length) finished(id, passage)
    }
    const ending = finishing ? 'done' : (endings[ended % endings.length] ?? 'done')
    ended += 1
    if (ending === 'done') return succeed()
    if (ending === 'throws') throw new Error('no')
    return new Promise<void>((resolve, reject) => {
      const active: Run = {
        id,
        end(well) {
          if (!runs.includes(active)) return
          runs = runs.filter((other) => other !== active)
          if (well) {
            succeed()
            resolve()
          } else reject(new Error('no'))
        },
      }
      runs.push(active)
      signal.addEventListener('abort', () => (runs = runs.filter((other) => other !== active)))
      if (ending !== 'waits') void Promise.resolve().then(() => active.end(ending === 'resolves'))
    })
  }

  const replayedNumbers = new Set<number>()
  const failures: unknown[] = []

  async function post(vins: readonly string[]): Promise<void> {
    const posted = vins.map((vin): Message => {
      const message: Message = { number: messages.size + 1, vin, status: undefined }
      messages.set(message.number, message)
      return message
    })
    const alive = generation
    const body = posted.map(({ vin, number }) => ({
      ...{ vin, createdAt: '2024-02-24T04:58:44Z', data: { Odometer: number } },
    }))
    const { status } = await receiver.accept({ authorization: undefined, body })
    if (alive !== generation) return
    for (const message of posted) message.status = status
    if (status === 200 && configuration.ack === 'handled' && draining === undefined) {
      for (const { number } of posted.filter((message) => !replayedNumbers.has(message.number))) {
        const [id] = [...passages].find(([, passage]) => passage.number === number) ?? []
        expect(id, `${number} was answered and is not over`).toBeUndefined()
      }
    }
  }

  /** Everything that is only in the process is gone; what the disk has is found again. */
  function crash(): void {
    if (!durable || draining !== undefined) return
    const kept = new Set([...on.messages.values(), ...on.dead.values()].flatMap(numbersIn))
    const isOver = new Set(over.map(({ number }) => number))
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
    const [letter] = await receiver.deadLetters.list({ limit: 1 })
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

  /** How many messages that came over the wire are still in the inbox, when no lane has any. */
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
    expect(taken).toBe(stats.handled + stats.deadLettered + stats.lost + stats.conflated + waiting())
  }

  async function act(action: Action): Promise<void> {
    if (action.kind === 'post') void post(action.vins).catch((error: unknown) => failures.push(error))
    else if (action.kind === 'end') runs[action.which % Math.max(1, runs.length)]?.end(action.well)
    else if (action.kind === 'inbox') steps.splice(action.which % Math.max(1, steps.length), 1)[0]?.go(action.well)
    else if (action.kind === 'advance') await clock.advance(action.ms)
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
        // A gap waits for the next message that the inbox takes.
        await act({ kind: 'post', vins: ['Z'] })
        await settleDown()
      }
      const { received, recovered, replayed, handled, deadLettered, lost, conflated, pending } = receiver.stats()
      const accepted = [...messages.values()].filter(({ status }) => status === 200)
      expect(received + recovered + replayed).toBe(handled + deadLettered + lost + conflated + waiting())
      if (drained === undefined) {
        expect({ pending: pending.messages, gaps: receiver.stats().openGaps }).toEqual({ pending: 0, gaps: 0 })
        expect(passages.size).toBe(0)
        // Every acknowledged message went through all of its handlers, itself or in the one it was merged into, or is dead.
        const through = over.filter((passage) => passage.dead || passage.succeeded.size === handlers.length)
        const numbers = new Set(through.map(({ number }) => number))
        for (const { number } of accepted.filter(() => overflow === 'refuse' && configuration.ack !== 'received'))
          expect(numbers, `${number} was acknowledged and never handled`).toContain(number)
        if (generation === 0) {
          const stood = new Map(through.map((passage) => [passage.number, passage.stands]))
          expect([...stood.values()].reduce((sum, count) => sum + count, 0)).toBe(received - lost)
          const refused = [...messages.values()].filter(({ status }) => status === 503)
          expect(missed).toBe(refused.length + lost)
        }
      } else {
        // A drain waits a second for a slow inbox; what that notes later was told as left, and is counted all the same.
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
