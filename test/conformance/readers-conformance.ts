import type { Inbox, InboxMessage, InboxHost, Opened } from 'fleethook/extend'
import { type Conformance, equal } from '../../src/testing/expectations.ts'
import type { InboxUnderTest } from '../../src/testing/inbox-conformance.ts'
import {
  archiveOf,
  id,
  lettersIn,
  message,
  readersInMemory,
  reason,
  usualSettings,
} from '../../src/testing/kept-message.ts'

/** A reader of an inbox, and what the inbox has told it. */
interface Reader {
  readonly inbox: Inbox
  readonly opened: Opened
  /** The ids that were handed to it, in their order. */
  readonly got: string[]
  readonly skipped: string[]
}

interface Scene {
  readonly front: Inbox
  readonly reader: Reader
  readonly ids: (...numbers: readonly number[]) => readonly string[]
}

type Check = (name: string, run: (scene: Scene) => Promise<void>, limits?: Partial<InboxHost>) => void

/** The checks that an inbox with several readers must pass, beside those of every inbox. */
export function readersConformance(subject: InboxUnderTest): readonly Conformance[] {
  const checks: Conformance[] = []
  const check: Check = (name, run, limits = {}) => {
    checks.push({
      name,
      async run() {
        const front = await subject.create(usualSettings)
        const reader = readerOf(front, 'crm', limits)
        await front.open()
        const opened = await reader.open()
        await run({ front, reader: opened, ids })
        await opened.inbox.close()
        await front.close()
      },
    })
  }

  check('A reader gets each message once, in order, and only after it is stored', async ({ front, reader }) => {
    for (const n of [1, 2, 3]) await front.put([message(n)])
    await front.put([message(4), message(5)])
    await until(() => reader.got.length >= 5)
    equal(reader.got, ids(1, 2, 3, 4, 5))
    equal((await reader.inbox.claim(id(3)))?.message.text, message(3).text)
  })

  check('What one side is done with still waits on the other', async ({ front, reader }) => {
    await front.put([message(1), message(2)])
    await until(() => reader.got.length >= 2)
    await front.claim(id(1))
    await front.settle(id(1))
    equal([front.usage().messages, reader.inbox.usage().messages], [1, 2])
    equal((await reader.inbox.claim(id(1)))?.message.id, id(1))
    await reader.inbox.settle(id(1))
    await reader.inbox.settle(id(2))
    equal([front.usage().messages, reader.inbox.usage().messages], [1, 0])
    equal(await reader.inbox.claim(id(2)), undefined)
    equal((await front.claim(id(2)))?.message.id, id(2))
  })

  check('Each side counts how often it handed a message out', async ({ front, reader }) => {
    await front.put([message(1)])
    await until(() => reader.got.length > 0)
    for (const expected of [0, 1, 2]) equal((await front.claim(id(1)))?.deliveries, expected)
    equal((await reader.inbox.claim(id(1)))?.deliveries, 0)
    await reader.inbox.settle(id(1), { as: 'later', next: { attempts: 4, notBefore: 0, deliveries: 4 } })
    equal((await reader.inbox.claim(id(1)))?.deliveries, 4)
    equal((await front.claim(id(1)))?.deliveries, 3)
  })

  check('Timers of the receiver are its own, and what a reader puts is its own', async ({ front, reader }) => {
    await front.put([own(1, 'timer')])
    await front.put([own(2, 'gap')])
    await reader.inbox.put([own(3, 'timer')])
    await reader.inbox.put([own(4, 'gap')])
    await until(() => reader.got.length >= 3)
    equal(reader.got, ids(2, 3, 4))
    equal(await reader.inbox.claim(id(1)), undefined)
    for (const n of [3, 4]) equal(await front.claim(id(n)), undefined)
    equal([front.usage().messages, reader.inbox.usage().messages], [2, 3])
    const listed = async (inbox: Inbox): Promise<readonly string[]> =>
      (await archiveOf(inbox)?.list('all', { limit: 10 }))?.map((each) => each.message.id) ?? []
    equal(await listed(front), ids(2, 1))
    equal(await listed(reader.inbox), ids(4, 3, 2))
  })

  check('Dead letters are of one side, and so are their replays', async ({ front, reader }) => {
    await front.put([message(1)])
    await until(() => reader.got.length > 0)
    await reader.inbox.settle(id(1), { as: 'dead', reason })
    equal((await lettersIn(reader.inbox, { limit: 9 })).length, 1)
    equal((await lettersIn(front, { limit: 9 })).length, 0)
    await front.settle(id(1))
    equal((await archiveOf(reader.inbox)?.revive(id(1)))?.id, id(1))
    equal((await reader.inbox.claim(id(1)))?.replayed, true)
    equal([front.usage().messages, reader.inbox.usage().messages], [0, 1])
    await reader.inbox.settle(id(1), { as: 'dead', reason })
    equal(await archiveOf(reader.inbox)?.discard(id(1)), true)
    equal((await lettersIn(reader.inbox, { limit: 9 })).length, 0)
  })

  check('A dead letter that one side deletes still waits on the other', async ({ front, reader }) => {
    await front.put([message(1)])
    await until(() => reader.got.length > 0)
    await front.settle(id(1), { as: 'dead', reason })
    equal(await archiveOf(front)?.discard(id(1)), true)
    equal((await reader.inbox.claim(id(1)))?.message.text, message(1).text)
  })

  check(
    'A reader over its limits never makes the receiver refuse: it hears of what it does not get',
    async ({ front, reader }) => {
      for (const n of [1, 2, 3, 4]) await front.put([message(n)])
      await until(() => reader.skipped.length >= 2)
      equal(reader.got, ids(1, 2))
      equal(reader.skipped, ids(3, 4))
      equal(front.usage().messages, 4)
      equal(front.refusing(), undefined)
      await reader.inbox.settle(id(1))
      await front.put([message(5)])
      await until(() => reader.got.length >= 3)
      equal(reader.got, ids(1, 2, 5))
    },
    { limits: { ...usualSettings.limits, pendingMessages: 2 } },
  )

  check('Erasing a vehicle erases it on both sides, and counts a message once', async ({ front, reader }) => {
    if (front.forget === undefined) return
    await front.put([message(1), { ...message(2), lane: 'OTHER' }, message(3)])
    await until(() => reader.got.length >= 3)
    await front.settle(id(1))
    await reader.inbox.settle(id(3), { as: 'dead', reason })
    const { messages, waiting, deadLetters } = await front.forget('VIN', true)
    equal({ messages, waiting, deadLetters }, { messages: 2, waiting: 2, deadLetters: 1 })
    const erased = await front.forget('VIN', false)
    equal([erased.messages, erased.waitingHere, erased.waitingOf], [2, 1, { crm: 1 }])
    equal([front.usage().messages, reader.inbox.usage().messages], [1, 1])
    equal(await reader.inbox.claim(id(1)), undefined)
    equal((await lettersIn(reader.inbox, { limit: 9 })).length, 0)
    equal((await reader.inbox.claim(id(2)))?.message.id, id(2))
  })

  checks.push({
    name: 'A new reader begins with the next message',
    async run() {
      const front = await subject.create(usualSettings)
      await front.open()
      await front.put([message(1)])
      const reader = await readerOf(front, 'crm').open()
      await front.put([message(2)])
      await until(() => reader.got.length > 0)
      equal(reader.got, ids(2))
      equal(await reader.inbox.claim(id(1)), undefined)
      await reader.inbox.close()
      await front.close()
    },
  })

  if (subject.reopen !== undefined) checks.push(...afterAnEnd(subject, subject.reopen.bind(subject)))
  return checks
}

/** What a durable inbox keeps of its readers when a process ends. */
function afterAnEnd(subject: InboxUnderTest, reopen: NonNullable<InboxUnderTest['reopen']>): readonly Conformance[] {
  const left = async (): Promise<Inbox> => {
    const front = await subject.create(usualSettings)
    const made = readerOf(front, 'crm')
    await front.open()
    const reader = await made.open()
    await front.put([message(1), message(2), message(3)])
    await until(() => reader.got.length >= 3)
    await front.settle(id(2))
    await reader.inbox.settle(id(1), { as: 'dead', reason })
    await reader.inbox.settle(id(3), { as: 'later', next: { attempts: 2, notBefore: 0, deliveries: 2 } })
    // A later put writes what nobody waits for.
    await front.put([message(4)])
    await reader.inbox.settle(id(1), { as: 'dead', reason })
    return front
  }
  return [
    {
      name: 'After the process ended, each side goes on with what it left',
      async run() {
        const before = await left()
        const front = await reopen(before, usualSettings)
        const made = readerOf(front, 'crm')
        const opened = await front.open()
        const reader = await made.open()
        equal(await waitingIn(opened), ids(1, 3, 4))
        equal(await waitingIn(reader.opened), ids(2, 3, 4))
        equal((await reader.inbox.claim(id(3)))?.deliveries, 2)
        equal(
          (await lettersIn(reader.inbox, { limit: 9 })).map((letter) => letter.id),
          ids(1),
        )
        await reader.inbox.close()
        await front.close()
      },
    },
    {
      name: 'What waits for a reader that is gone waits until it is back, and nothing new is for it',
      async run() {
        const before = await left()
        const without = await reopen(before, usualSettings)
        await without.open()
        for (const n of [1, 3, 4]) await without.settle(id(n))
        await without.put([message(5)])
        await without.close()
        const front = await reopen(without, usualSettings)
        const made = readerOf(front, 'crm')
        await front.open()
        const reader = await made.open()
        equal(await waitingIn(reader.opened), ids(2, 3, 4))
        equal((await reader.inbox.claim(id(2)))?.message.text, message(2).text)
        await reader.inbox.close()
        await front.close()
      },
    },
  ]
}

const ids = (...numbers: readonly number[]): readonly string[] => numbers.map(id)

const own = (n: number, kind: InboxMessage['kind']): InboxMessage => ({ ...message(n), kind })

async function waitingIn({ waiting }: Opened): Promise<readonly string[]> {
  const found: string[] = []
  for await (const page of waiting) found.push(...page.map((each) => each.id))
  return found
}

/** Adds a reader. `open` resolves when it follows. */
function readerOf(front: Inbox, name: string, limits: Partial<InboxHost> = {}): { open(): Promise<Reader> } {
  const got: string[] = []
  const skipped: string[] = []
  const inbox = front.reader?.(name, {
    ...usualSettings,
    ...limits,
    readersInMemory,
    on(event) {
      if (event.type === 'stored' || event.type === 'waiting') got.push(...event.messages.map((each) => each.id))
      if (event.type === 'skipped') skipped.push(...event.messages.map((each) => each.id))
    },
  })
  if (inbox === undefined) throw new Error('The inbox has one reader only.')
  return {
    open: async () => ({ inbox, opened: await inbox.open(), got, skipped }),
  }
}

/** Other processes and later commits hand out a little later. */
async function until(holds: () => boolean): Promise<void> {
  const endsAt = performance.now() + 10_000
  while (!holds() && performance.now() < endsAt) await new Promise((resolve) => setTimeout(resolve, 1))
  equal(holds(), true)
}
