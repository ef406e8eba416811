import type { EventOf, Observer, Receiver, ReceiverOptions } from 'fleethook'
import { describe, expect, test } from 'vitest'
import { placed, sharedInbox } from '../inbox/shared-inbox.ts'
import { turn } from './fake-clock.ts'
import { gates, type Scene, scene } from './scene.ts'

async function sharing(options: Partial<ReceiverOptions>, prepare: (receiver: Receiver) => void) {
  const shared = sharedInbox()
  const around = scene({ inbox: shared.inbox, retry: { minMs: 100 }, ...options })
  prepare(around.receiver)
  await around.receiver.open()
  return { ...around, shared }
}

const name = ({ vin, data: { Odometer } }: EventOf<'data'>): string => `${vin}${String(Odometer)}`
const names = (events: readonly EventOf<'data'>[]): string => events.map(name).join(' ')
const ofA = [1, 2, 3].map((number) => placed('A', number))
const b1 = placed('B', 11)

/** Nothing is under way or waits, and every message that this process had is accounted for. */
function expectNothingLeft({ receiver, clock }: Scene, handled: number, handedOver: number): void {
  const idle = { lanes: 0, running: 0, paused: [], pending: { messages: 0 }, deadLettered: 0, lost: 0 }
  expect(receiver.stats()).toMatchObject({ ...idle, handled, handedOver, recovered: handled + handedOver })
  expect(clock.timers()).toEqual([])
}

describe('messages that another process has taken over', () => {
  test.each([0, 1, 2, 3, 4, 5, 6])(
    'run in no batch, %i microtasks after the inbox said that they are here',
    async (microtasks) => {
      let isAway = false
      const seen: boolean[] = []
      const { shared, clock } = await sharing({}, (receiver) => {
        receiver.batch('data', { size: 1, withinMs: 0 }, () => void seen.push(isAway))
      })
      const gate = gates()
      shared.step = (what) => (what === 'held' ? gate.wait('held') : undefined)
      shared.handOver(...ofA.slice(0, 1))
      await turn()
      await clock.advance(0)
      gate.open('held')
      for (let n = 0; n < microtasks; n += 1) await Promise.resolve()
      shared.takeAway('A')
      isAway = true
      await turn()
      expect(seen).not.toContain(true)
    },
  )

  test('and that are gathered take no place in a batch when they come back', async () => {
    const seen: string[] = []
    const scene = await sharing({}, (receiver) => {
      receiver.batch('data', { size: 5, withinMs: 1_000 }, (events) => void seen.push(names(events)))
    })
    for (const shouldLeave of [true, false]) {
      scene.shared.handOver(...ofA)
      await turn()
      if (shouldLeave) scene.shared.takeAway('A')
    }
    await scene.clock.advance(1_000)
    expect(seen).toEqual(['A1 A2 A3'])
    expectNothingLeft(scene, 3, 3)
  })

  test('have their signal aborted, and what follows in their handlers is neither settled nor reported', async () => {
    const gate = gates()
    const reasons: unknown[] = []
    const errors: unknown[] = []
    const scene = await sharing({ retry: { attempts: 1 } }, (receiver) => {
      receiver.observe({ failed: (error) => void errors.push(error) })
      receiver.on('data', (event, { signal, delivery }) => {
        signal.addEventListener('abort', () => reasons.push(signal.reason))
        return gate.wait(`${name(event)} ${delivery.attempt}`)
      })
    })
    const { shared, receiver } = scene
    shared.handOver(...ofA, b1)
    await turn()
    shared.takeAway('A')
    await turn()
    expect(reasons).toMatchObject([{ code: 'handed_over' }])
    shared.handOver(...ofA)
    await turn()
    expect(gate.waiting).toEqual(['A1 1', 'B11 1'])
    for (const waiting of ['A1 1', 'B11 1', 'A2 1', 'A3 1']) {
      gate.open(waiting)
      await turn()
    }
    expect(errors).toEqual([])
    expect(shared.over).toEqual([1, 11, 2, 3].map((number) => placed('A', number).id))
    expectNothingLeft(scene, 4, 3)
    expect(receiver.stats().retried).toBe(0)
  })

  test('do not make the rest of a failed batch a dead letter for what the whole batch did', async () => {
    const gate = gates()
    const seen: string[] = []
    const scene = await sharing({ retry: { attempts: 1 } }, (receiver) => {
      receiver.batch('data', { size: 2, withinMs: 1_000 }, async (events) => {
        seen.push(names(events))
        if (seen.length === 1) await gate.wait('batch')
      })
    })
    scene.shared.handOver(placed('A', 1), b1)
    await turn()
    scene.shared.takeAway('A')
    await turn()
    gate.fail('batch', new Error('A1 is bad'))
    await turn()
    expect(seen).toEqual(['A1 B11', 'B11'])
    expectNothingLeft(scene, 1, 1)
  })

  test('are ended inside the function of an observer too', async () => {
    const ends: unknown[] = []
    const observe: Observer = { around: async (run) => void ends.push((await run()).failure) }
    const seen: string[] = []
    const scene = await sharing({ observe }, (receiver) => {
      receiver.on('data', (event) => {
        seen.push(name(event))
        return seen.length === 1 ? new Promise(() => {}) : undefined
      })
    })
    scene.shared.handOver(...ofA)
    await turn()
    scene.shared.takeAway('A')
    await turn()
    scene.shared.handOver(...ofA)
    await turn()
    expect(seen).toEqual(['A1', 'A1', 'A2', 'A3'])
    expect(ends).toMatchObject([{ error: { code: 'handed_over' } }, undefined, undefined, undefined])
    expectNothingLeft(scene, 3, 3)
  })
})

test('a batch whose inbox cannot say whether its messages are still here waits, and is said', async () => {
  const seen: string[][] = []
  const scene = await sharing({ concurrency: 1 }, (receiver) => {
    receiver.batch('data', { size: 2, withinMs: 100 }, (events) => void seen.push(events.map(name)))
  })
  let isDown = true
  scene.shared.step = (what) => {
    if (what === 'held' && isDown) throw new Error('no answer')
  }
  scene.shared.handOver(placed('A', 1), placed('A', 2))
  await turn()
  expect(scene.receiver.stats()).toMatchObject({ running: 0, handled: 0 })
  expect(scene.lines).toMatchObject([expect.stringContaining('the inbox failed')])
  isDown = false
  await scene.clock.advance(10_000)
  expect(seen).toEqual([['A1', 'A2']])
  expectNothingLeft(scene, 2, 0)
})
