import { pause, systemClock } from '../../src/base/clock.ts'
import type { InboxFactory } from '../../src/extend.ts'
import { createReceiver, type FleetEvent, type MalformedBody, type Receiver } from '../../src/index.ts'
import { type Conformance, equal } from '../../src/testing/expectations.ts'

/** Inboxes whose messages another system keeps. */
export interface RelayUnderTest {
  /**
   * Creates an inbox on the other system. Inboxes with the same name share their messages, as several processes do. Inboxes
   * with other names see none of them.
   */
  inbox(name: string): InboxFactory | Promise<InboxFactory>
  /**
   * The longest wait for a handler, in milliseconds. A process may have to wait until another process has left. Default
   * 30,000.
   */
  readonly patienceMs?: number
}

/** What a handler was given. */
interface Run {
  readonly event: FleetEvent | MalformedBody
  readonly id: string
  readonly attempt: number
  readonly replayed: boolean
}

/** A receiver, and everything that its handlers received. */
interface Process {
  readonly receiver: Receiver
  readonly runs: Run[]
}

type Handle = (run: Run) => unknown

const vinOf = (n: number): string => `0FLEETV14T${String(n).padStart(7, '0')}`

/**
 * The checks that every inbox must pass whose messages another system keeps: receivers and handlers in several processes, with the
 * order within a VIN over all of them.
 */
export function relayConformance({ inbox, patienceMs = 30_000 }: RelayUnderTest): readonly Conformance[] {
  const checks: Conformance[] = []

  async function start(name: string, handle: Handle, attempts = 3): Promise<Process> {
    const runs: Run[] = []
    const receiver = createReceiver({
      secret: false,
      inbox: await inbox(name),
      retry: { attempts, minMs: 20, maxMs: 50 },
      log: { debug() {}, info() {}, warn() {}, error() {} },
    }).on(['*', 'malformed'], async (event, { delivery: { id, attempt, replayed } }) => {
      // Another check is about the time in which nobody listened.
      if (event.topic === 'gap') return
      const run = { event, id, attempt, replayed }
      await handle(run)
      runs.push(run)
    })
    await receiver.open()
    return { receiver, runs }
  }

  /** Adds a check. Its processes share a name that no other check uses, and are drained at its end. */
  function check(
    name: string,
    run: (begin: (handle?: Handle, attempts?: number) => Promise<Process>) => Promise<void>,
  ): void {
    const number = checks.length + 1
    checks.push({
      name,
      async run() {
        const begun: Process[] = []
        const own = `conformance-${number}`
        try {
          await run(async (handle = () => {}, attempts = 3) => {
            const one = await start(own, handle, attempts)
            begun.push(one)
            return one
          })
        } finally {
          await Promise.all(begun.map(({ receiver }) => receiver.drain({ deadlineMs: 5_000, handlerGraceMs: 200 })))
        }
      },
    })
  }

  async function until(what: string, isSo: () => boolean | Promise<boolean>): Promise<void> {
    for (const endsAtMs = Date.now() + patienceMs; !(await isSo());) {
      if (Date.now() > endsAtMs) throw new Error(`Expected within ${patienceMs} ms that ${what}.`)
      await pause(systemClock, 20)
    }
  }

  check('An accepted message reaches its handler', async (begin) => {
    const { receiver, runs } = await begin()
    equal(await post(receiver, 1, 1), 200)
    await until('its handler has run', () => runs.length === 1)
    equal(summary(runs), [[vinOf(1), 1]])
    equal({ attempt: runs[0]?.attempt, replayed: runs[0]?.replayed }, { attempt: 1, replayed: false })
  })

  check('Messages of a VIN are handled in the order of their arrival, while others run beside', async (begin) => {
    const { receiver, runs } = await begin(() => pause(systemClock, Math.random() * 5))
    const numbers = Array.from({ length: 200 }, (_, n) => n)
    const statuses = await Promise.all(numbers.map((n) => post(receiver, n % 10, n)))
    equal([...new Set(statuses)], [200])
    await until('200 handlers have run', () => runs.length === 200)
    inOrderByVehicle(runs, numbers)
  })

  check('All messages of a body are kept', async (begin) => {
    const { receiver, runs } = await begin()
    const body = Array.from({ length: 30 }, (_, n) => data(n % 15, n))
    equal((await receiver.accept({ authorization: undefined, body })).status, 200)
    await until('30 handlers have run', () => runs.length === 30)
    equal(numbersOf(runs, 3), [3, 18])
  })

  check('Two processes share the work: each message is handled once, in order', async (begin) => {
    const started: Run[] = []
    const handle = (run: Run): Promise<void> => {
      started.push(run)
      return pause(systemClock, 2)
    }
    const processes = [await begin(handle), await begin(handle)]
    const numbers = Array.from({ length: 200 }, (_, n) => n)
    for (const n of numbers) {
      const one = processes[n % 2]
      if (one !== undefined) equal(await post(one.receiver, n % 10, n), 200)
    }
    await until('200 handlers have run', () => processes.flatMap(({ runs }) => runs).length >= 200)
    // Time for one that runs a second time.
    await pause(systemClock, 200)
    inOrderByVehicle(started, numbers)
  })

  check('What a drained process leaves is handled by the next one', async (begin) => {
    const first = await begin(() => new Promise(() => {}))
    for (let n = 0; n < 5; n += 1) equal(await post(first.receiver, 1, n), 200)
    await first.receiver.drain({ deadlineMs: 2_000, handlerGraceMs: 50 })
    const { runs } = await begin()
    await until('five handlers have run', () => runs.length >= 5)
    equal(numbersOf(runs, 1), [0, 1, 2, 3, 4])
  })

  check('A drained process refuses messages', async (begin) => {
    const { receiver } = await begin()
    await receiver.drain({ deadlineMs: 2_000, handlerGraceMs: 50 })
    equal(await post(receiver, 1, 1), 503)
  })

  check('A handler that fails runs again, and the messages behind it wait', async (begin) => {
    let failures = 0
    const { receiver, runs } = await begin(({ event }) => {
      if (numberOf(event) === 0 && failures++ === 0) throw new Error('The first time fails.')
    })
    for (let n = 0; n < 3; n += 1) equal(await post(receiver, 1, n), 200)
    await until('three handlers have succeeded', () => runs.length === 3)
    equal(numbersOf(runs, 1), [0, 1, 2])
    equal(runs[0]?.attempt, 2)
  })

  check('A message that fails to the last attempt is a dead letter, and can be replayed', async (begin) => {
    let isBroken = true
    const { receiver, runs } = await begin(() => {
      if (isBroken) throw new Error('It is broken.')
    }, 1)
    const { deadLetters } = receiver
    equal(await post(receiver, 1, 7), 200)
    await until('there is a dead letter', async () => (await Array.fromAsync(deadLetters.list())).length === 1)
    const [letter] = await Array.fromAsync(deadLetters.list())
    equal(
      { error: letter?.error, attempts: letter?.attempts, number: letter && numberOf(letter.event) },
      { error: 'Error: It is broken.', attempts: 1, number: 7 },
    )
    const id = letter?.id ?? ''
    equal((await deadLetters.get(id))?.id, id)
    equal(await deadLetters.replay({ vin: vinOf(2) }), 0)
    isBroken = false
    equal(await deadLetters.replay(id), 1)
    await until('its handler has run', () => runs.length === 1)
    equal({ id: runs[0]?.id, replayed: runs[0]?.replayed }, { id, replayed: true })
    equal(await Array.fromAsync(deadLetters.list()), [])
    equal(await deadLetters.replay(id), 0)
  })

  check('A dead letter can be discarded', async (begin) => {
    const { receiver } = await begin(() => {
      throw new Error('It is broken.')
    }, 1)
    const { deadLetters } = receiver
    for (let n = 0; n < 2; n += 1) equal(await post(receiver, n, n), 200)
    await until('there are two dead letters', async () => (await Array.fromAsync(deadLetters.list())).length === 2)
    equal(await deadLetters.discard({ vin: vinOf(1), dryRun: true }), 1)
    equal(await deadLetters.discard({ vin: vinOf(1) }), 1)
    equal(
      (await Array.fromAsync(deadLetters.list())).map(({ event }) => numberOf(event)),
      [0],
    )
  })

  check('An authentic body that cannot be read reaches its handler', async (begin) => {
    const { receiver, runs } = await begin()
    equal((await receiver.accept({ authorization: undefined, body: '{"vin":' })).status, 400)
    await until('its handler has run', () => runs.length === 1)
    equal(runs[0]?.event.topic, 'malformed')
  })

  return checks
}

/** A message of a vehicle, with a number. */
function data(vehicle: number, number: number): object {
  return { vin: vinOf(vehicle), createdAt: '2026-01-01T00:00:00Z', data: { Odometer: number } }
}

async function post(receiver: Receiver, vehicle: number, number: number): Promise<number> {
  return (await receiver.accept({ authorization: undefined, body: data(vehicle, number) })).status
}

function numberOf(event: FleetEvent | MalformedBody): number {
  return event.topic === 'data' ? Number(event.data.Odometer) : Number.NaN
}

function summary(runs: readonly Run[]): readonly (readonly [string, number])[] {
  return runs.map(({ event }) => [event.topic === 'malformed' ? '' : (event.vin ?? ''), numberOf(event)])
}

function numbersOf(runs: readonly Run[], vehicle: number): readonly number[] {
  return summary(runs).flatMap(([vin, number]) => (vin === vinOf(vehicle) ? [number] : []))
}

/** Throws unless each of ten vehicles has its numbers, in their order. */
function inOrderByVehicle(runs: readonly Run[], numbers: readonly number[]): void {
  for (let vehicle = 0; vehicle < 10; vehicle += 1) {
    const own = numbers.filter((n) => n % 10 === vehicle)
    equal(numbersOf(runs, vehicle), own)
  }
}
