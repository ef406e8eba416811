import { systemClock } from '../base/clock.ts'
import type { Inbox, InboxSettings, Selection } from '../inbox/inbox.ts'
import { equal, rejects } from './expectations.ts'
import { id, message, reason, withoutEvent } from './kept-message.ts'
import { type Check, idsOf, reopenChecks } from './reopen-checks.ts'

/** How to make the inboxes that are put to the test. */
export interface InboxUnderTest {
  /** A new, empty inbox within these limits. */
  create(settings: InboxSettings): Inbox | Promise<Inbox>
  /**
   * For a durable inbox: what a new process finds that opens what `inbox` kept, after `inbox` has ended without `close`.
   * Left out for an inbox in memory.
   */
  reopen?(inbox: Inbox, settings: InboxSettings): Inbox | Promise<Inbox>
  /**
   * `false` for a durable inbox whose process the messages themselves start: none is missed while there is no process, so
   * there is no hole to tell of. Default `true`.
   */
  readonly tellsOfHoles?: boolean
}

/** One thing that every inbox does. */
export interface Conformance {
  /** What is promised, as a sentence. */
  readonly name: string
  /** Throws when it is not so. */
  run(): Promise<void>
}

const silent = (): void => {}

const onCapacity: InboxSettings = {
  pendingMessages: 1000,
  pendingBytes: 1_000_000,
  overflow: 'refuse',
  clock: systemClock,
  log: { debug: silent, info: silent, warn: silent, error: silent },
  onConflated: silent,
  onFailure: silent,
  onCapacity: silent,
}

/**
 * What every inbox must do, as code: for the author of one. Runs under any test runner.
 *
 * @example
 * ```ts
 * import { memoryInbox } from 'fleethook'
 * import { inboxConformance } from 'fleethook/testing'
 *
 * for (const { name, run } of inboxConformance({ create: memoryInbox() })) {
 *   await run()
 *   console.log('ok', name)
 * }
 * ```
 */
export function inboxConformance(subject: InboxUnderTest): readonly Conformance[] {
  const checks: Conformance[] = []
  const check: Check = (name, run, settings = onCapacity) => {
    checks.push({
      name,
      async run() {
        const inbox = await subject.create(settings)
        await run(inbox, await inbox.open())
        await inbox.close()
      },
    })
  }

  check('A new inbox is empty', async (inbox, { waiting, gaps = [] }) => {
    equal(inbox.usage(), { messages: 0, bytes: 0 })
    equal(inbox.refusing(), undefined)
    equal(gaps, [])
    equal(await idsOf(waiting), [])
    equal(await inbox.deadLetters({ limit: 10 }), [])
  })

  check('What was put is handed out as it was put', async (inbox) => {
    await inbox.put([message(1)])
    const claim = await inbox.claim(id(1))
    equal(claim && withoutEvent(claim.message), withoutEvent(message(1)))
    equal({ deliveries: claim?.deliveries, replayed: claim?.replayed }, { deliveries: 0, replayed: false })
  })

  check('A gap and a malformed body keep their kind', async (inbox) => {
    const kinds = ['gap', 'malformed'] as const
    await inbox.put(kinds.map((kind, n) => ({ ...message(n), kind })))
    for (const [n, kind] of kinds.entries()) equal((await inbox.claim(id(n)))?.message.kind, kind)
  })

  check('What was never put, and what is settled, cannot be claimed', async (inbox) => {
    equal(await inbox.claim(id(1)), undefined)
    await inbox.put([message(1)])
    await inbox.claim(id(1))
    await inbox.settle(id(1))
    equal(await inbox.claim(id(1)), undefined)
    equal(inbox.usage(), { messages: 0, bytes: 0 })
  })

  check('Settling what is gone does nothing', async (inbox) => {
    await inbox.put([message(1), message(2)])
    await inbox.settle(id(1))
    await inbox.settle(id(1))
    await inbox.settle(id(9))
    equal(inbox.usage().messages, 1)
  })

  check('Usage counts messages and bytes, waiting and claimed together', async (inbox) => {
    await inbox.put([message(1, 100), message(2, 50)])
    equal(inbox.usage(), { messages: 2, bytes: 150 })
    await inbox.claim(id(1))
    equal(inbox.usage(), { messages: 2, bytes: 150 })
    await inbox.settle(id(1))
    equal(inbox.usage(), { messages: 1, bytes: 50 })
  })

  check('A message says how often it was handed out before, put back or not', async (inbox) => {
    await inbox.put([message(1)])
    equal((await inbox.claim(id(1)))?.deliveries, 0)
    await inbox.reschedule(id(1), { attempts: 1, notBefore: 0 })
    equal((await inbox.claim(id(1)))?.deliveries, 1)
    equal((await inbox.claim(id(1)))?.deliveries, 2)
  })

  check(
    'Full by messages: all of a put or none of it, with inbox_full, and room again after a settle',
    async (inbox) => {
      await inbox.put([message(1), message(2)])
      await rejects(inbox.put([message(3), message(4)]), 'inbox_full')
      equal(inbox.usage().messages, 2)
      equal(await inbox.claim(id(3)), undefined)
      await inbox.put([message(5)])
      await rejects(inbox.put([message(6)]), 'inbox_full')
      await inbox.settle(id(1))
      await inbox.put([message(7)])
      equal(inbox.usage().messages, 3)
    },
    { ...onCapacity, pendingMessages: 3 },
  )

  check(
    'Full by bytes',
    async (inbox) => {
      await inbox.put([message(1, 60)])
      await rejects(inbox.put([message(2, 41)]), 'inbox_full')
      await inbox.put([message(3, 40)])
      equal(inbox.usage(), { messages: 2, bytes: 100 })
    },
    { ...onCapacity, pendingBytes: 100 },
  )

  check('A dead letter is kept with why, and is no longer pending', async (inbox) => {
    await inbox.put([message(1), message(2)])
    await inbox.claim(id(1))
    equal(await inbox.deadLetter(id(1), reason), 0)
    equal(await inbox.claim(id(1)), undefined)
    equal(inbox.usage().messages, 1)
    const [letter, ...others] = await inbox.deadLetters({ limit: 10 })
    equal(others, [])
    equal(letter && { ...letter, message: withoutEvent(letter.message) }, {
      ...{ id: id(1), ...reason },
      message: withoutEvent(message(1)),
    })
  })

  check('Dead letters are listed in the order of their ids, a page at a time, and by lane and time', async (inbox) => {
    await inbox.put([message(1), { ...message(2), lane: 'OTHER' }, message(3)])
    for (const n of [2, 3, 1]) await inbox.deadLetter(id(n), reason)
    const ids = async (which: Selection): Promise<readonly string[]> =>
      (await inbox.deadLetters(which)).map((letter) => letter.id)
    equal(await ids({ limit: 10 }), [id(1), id(2), id(3)])
    equal(await ids({ limit: 2 }), [id(1), id(2)])
    equal(await ids({ limit: 2, after: id(2) }), [id(3)])
    equal(await ids({ limit: 10, lane: 'OTHER' }), [id(2)])
    equal(await ids({ limit: 10, fromMs: message(2).receivedAt, toMs: message(3).receivedAt }), [id(2)])
    equal((await inbox.findDeadLetter(id(2)))?.message.lane, 'OTHER')
    equal(await inbox.findDeadLetter(id(9)), undefined)
  })

  check('What is gone does not become a dead letter', async (inbox) => {
    equal(await inbox.deadLetter(id(1), reason), 0)
    equal(await inbox.deadLetters({ limit: 10 }), [])
  })

  check('A revived dead letter is a message again, under its id, as replayed, with no deliveries', async (inbox) => {
    await inbox.put([message(1)])
    await inbox.claim(id(1))
    await inbox.deadLetter(id(1), reason)
    const { lane, kind } = message(1)
    const revived = await inbox.revive(id(1))
    equal(revived && { id: revived.id, lane: revived.lane, kind: revived.kind }, { id: id(1), lane, kind })
    equal(await inbox.deadLetters({ limit: 10 }), [])
    equal(inbox.usage().messages, 1)
    const claim = await inbox.claim(id(1))
    equal({ deliveries: claim?.deliveries, replayed: claim?.replayed }, { deliveries: 0, replayed: true })
    equal(await inbox.revive(id(1)), undefined)
  })

  check(
    'A dead letter for which there is no room stays one',
    async (inbox) => {
      await inbox.put([message(1)])
      await inbox.deadLetter(id(1), reason)
      await inbox.put([message(2)])
      await rejects(inbox.revive(id(1)), 'inbox_full')
      equal((await inbox.deadLetters({ limit: 10 })).length, 1)
    },
    { ...onCapacity, pendingMessages: 1 },
  )

  check('A discarded dead letter is gone', async (inbox) => {
    await inbox.put([message(1)])
    await inbox.deadLetter(id(1), reason)
    equal([await inbox.discard(id(1)), await inbox.discard(id(1))], [true, false])
    equal(await inbox.deadLetters({ limit: 10 }), [])
    equal(await inbox.revive(id(1)), undefined)
  })

  check('Many puts at once all arrive', async (inbox) => {
    const numbers = Array.from({ length: 200 }, (_, n) => n)
    await Promise.all(numbers.map((n) => inbox.put([message(n)])))
    equal(inbox.usage().messages, 200)
    const claims = await Promise.all(numbers.map((n) => inbox.claim(id(n))))
    equal(
      claims.map((claim) => claim?.message.id),
      numbers.map(id),
    )
  })

  check('Nothing is put once it is closed', async (inbox) => {
    await inbox.close()
    await rejects(inbox.put([message(1)]), 'inbox_unavailable')
  })

  reopenChecks(subject, check, onCapacity)
  return checks
}
