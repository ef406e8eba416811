import type { Inbox, InboxHost, Opened, StoredVehicle, VehicleStore } from 'fleethook/extend'
import { FleethookError } from '../../src/base/errors.ts'
import { type Conformance, equal } from '../../src/testing/expectations.ts'
import type { InboxUnderTest } from '../../src/testing/inbox-conformance.ts'
import { archiveOf, id, memoryVehicles, message, reason, seqOf, usualSettings } from '../../src/testing/kept-message.ts'

const settings: InboxHost = { ...usualSettings, states: memoryVehicles }

const state = (vin: string, n: number, seenMs: number = n): StoredVehicle => ({
  vin,
  seq: seqOf(id(n)),
  seenMs,
  bytes: 100,
  text: () => JSON.stringify({ vin, n }),
})

/** The state as a store returns it, without its function. */
const read = (stored: StoredVehicle | undefined): unknown =>
  stored && { vin: stored.vin, seq: stored.seq, text: JSON.parse(stored.text()) as unknown }

function storeOf({ states }: Inbox): VehicleStore {
  if (states !== undefined) return states
  throw new FleethookError('option_invalid', 'The inbox has no `states`.')
}

/** The checks that the store of vehicles of an inbox must pass, beside `inboxConformance`. */
export function vehiclesConformance(subject: InboxUnderTest): readonly Conformance[] {
  const checks: Conformance[] = []
  const check = (name: string, run: (inbox: Inbox, store: VehicleStore, opened: Opened) => Promise<void>): void => {
    checks.push({
      name,
      async run() {
        const inbox = await subject.create(settings)
        const opened = await inbox.open()
        await run(inbox, storeOf(inbox), opened)
        await inbox.close()
      },
    })
  }

  async function settle(inbox: Inbox, vin: string, n: number): Promise<void> {
    await inbox.put([{ ...message(n), lane: vin }])
    await inbox.claim(id(n))
    await inbox.settle(id(n), { as: 'done', vehicle: state(vin, n) })
  }

  check('A new store has no vehicle', async (_, store) => {
    equal(read(await store.load('A')), undefined)
    equal(await store.list({ limit: 10 }), [])
    equal(await store.count(), { vehicles: 0, unwritten: 0 })
  })

  check('The state that came with a settled message is there at once', async (inbox, store) => {
    await settle(inbox, 'A', 1)
    equal(read(await store.load('A')), read(state('A', 1)))
    await settle(inbox, 'A', 2)
    equal(read(await store.load('A')), read(state('A', 2)))
  })

  check('Vehicles with a timer are known', async (inbox, store) => {
    await settle(inbox, 'A', 1)
    await inbox.put([{ ...message(2), lane: 'B' }])
    await inbox.claim(id(2))
    const dueMs = 1_795_255_200_000
    const vehicle = { ...state('B', 2), dueMs, text: () => JSON.stringify({ due: dueMs, n: 2 }) }
    await inbox.settle(id(2), { as: 'done', vehicle })
    // A store may write it with this.
    await store.count()
    const found: unknown[] = []
    for await (const page of store.due()) found.push(...page)
    equal(found, [{ vin: 'B', dueMs }])
  })

  check(
    'The state that came with a dead letter is there at once, and so is what the message changed',
    async (inbox, store) => {
      await inbox.put([{ ...message(1), lane: 'A' }])
      await inbox.claim(id(1))
      await inbox.settle(id(1), { as: 'dead', reason: { ...reason, changed: 'what changed' }, vehicle: state('A', 1) })
      equal(read(await store.load('A')), read(state('A', 1)))
      await archiveOf(inbox)?.revive(id(1))
      equal((await inbox.claim(id(1)))?.changed, 'what changed')
    },
  )

  check('A message without a state leaves the last one', async (inbox, store) => {
    await settle(inbox, 'A', 1)
    await inbox.put([{ ...message(2), lane: 'A' }])
    await inbox.settle(id(2))
    equal(read(await store.load('A')), read(state('A', 1)))
  })

  check(
    'Vehicles are listed in the order of VINs, in pages, without what concerns all of them',
    async (inbox, store) => {
      for (const [n, vin] of ['C', 'A', '', 'B'].entries()) await settle(inbox, vin, n + 1)
      const vins = async (which: Parameters<VehicleStore['list']>[0]): Promise<readonly string[]> =>
        (await store.list(which)).map(({ vin }) => vin)
      equal(await vins({ limit: 2 }), ['A', 'B'])
      equal(await vins({ limit: 2, after: 'B' }), ['C'])
      equal((await store.count()).vehicles, 3)
      equal(await vins({ limit: 2 }), ['A', 'B'])
    },
  )

  check('A forgotten vehicle is gone, and can come back', async (inbox, store) => {
    await settle(inbox, 'A', 1)
    equal(await store.forget('A'), true)
    equal(await store.forget('A'), false)
    equal(await store.load('A'), undefined)
    equal(await store.list({ limit: 10 }), [])
    await settle(inbox, 'A', 2)
    equal(read(await store.load('A')), read(state('A', 2)))
  })

  check('Vehicles that were not seen are forgotten', async (inbox, store) => {
    await settle(inbox, 'A', 1)
    await settle(inbox, 'B', 2)
    // A store may write a state some time after it gets it.
    await store.count()
    equal(await store.forgetUnseen(2), 1)
    equal(await store.load('A'), undefined)
    equal(read(await store.load('B')), read(state('B', 2)))
  })

  const { reopen } = subject
  if (reopen !== undefined) {
    checks.push({
      name: 'After a crash, each settled message is in the state of its vehicle, or is returned to be applied again',
      async run() {
        const inbox = await subject.create(settings)
        await inbox.open()
        await settle(inbox, 'A', 1)
        await settle(inbox, 'B', 2)
        await storeOf(inbox).count()
        await settle(inbox, 'A', 3)
        // As durable as `settle`: it is on the disk with the next message that is put.
        await inbox.put([{ ...message(4), lane: 'C' }])
        await inbox.put([{ ...message(5), lane: 'C' }])
        const again = await reopen(inbox, settings)
        const { unapplied, waiting } = await again.open()
        const store = storeOf(again)
        const missed: string[] = []
        for await (const page of unapplied ?? []) missed.push(...page.map((each) => each.id))
        const waits: string[] = []
        for await (const page of waiting) waits.push(...page.map((each) => each.id))
        for (const [vin, n] of [
          ['A', 1],
          ['B', 2],
          ['A', 3],
        ] as const) {
          const { seq } = (await store.load(vin)) ?? { seq: -1 }
          const isIn = seq >= seqOf(id(n)) || missed.includes(id(n)) || waits.includes(id(n))
          equal([n, isIn], [n, true])
        }
        equal(missed.toSorted(), missed)
        await again.close()
      },
    })
    checks.push({
      name: 'After `close`, the states are those that came last, and nothing has to be applied again',
      async run() {
        const inbox = await subject.create(settings)
        await inbox.open()
        await settle(inbox, 'A', 1)
        await settle(inbox, 'A', 2)
        await inbox.close()
        const again = await reopen(inbox, settings)
        const { unapplied } = await again.open()
        for await (const page of unapplied ?? []) equal(page, [])
        equal(read(await storeOf(again).load('A')), read(state('A', 2)))
        await again.close()
      },
    })
  }

  return checks
}
