import type { Inbox } from '../inbox/inbox.ts'
import type { InboxSettings } from '../inbox/memory.ts'
import { equal, rejects } from './expectations.ts'
import { id, message, reason, withoutEvent } from './kept-message.ts'

/** How to make the inboxes that are put to the test. */
export interface InboxUnderTest {
  /** A new, empty inbox within these limits. */
  create(settings: InboxSettings): Inbox | Promise<Inbox>
  /**
   * For a durable inbox: what a new process finds that opens what `inbox` kept, after `inbox` has ended without `close`.
   * Left out for an inbox in memory.
   */
  reopen?(inbox: Inbox, settings: InboxSettings): Inbox | Promise<Inbox>
}

/** One thing that every inbox does. */
export interface Conformance {
  /** What is promised, as a sentence. */
  readonly name: string
  /** Throws when it is not so. */
  run(): Promise<void>
}

const roomy: InboxSettings = { pendingMessages: 1000, pendingBytes: 1_000_000, overflow: 'refuse' }

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
  const check = (name: string, run: (inbox: Inbox) => Promise<void>, settings: InboxSettings = roomy): void => {
    checks.push({
      name,
      async run() {
        const inbox = await subject.create(settings)
        await run(inbox)
        await inbox.close()
      },
    })
  }

  check('A new inbox is empty', async (inbox) => {
    equal(inbox.usage(), { messages: 0, bytes: 0 })
    equal(await idsOf(inbox.recover()), [])
    equal(await inbox.deadLetters(10), [])
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
    await inbox.reschedule(id(1))
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
    { ...roomy, pendingMessages: 3 },
  )

  check(
    'Full by bytes',
    async (inbox) => {
      await inbox.put([message(1, 60)])
      await rejects(inbox.put([message(2, 41)]), 'inbox_full')
      await inbox.put([message(3, 40)])
      equal(inbox.usage(), { messages: 2, bytes: 100 })
    },
    { ...roomy, pendingBytes: 100 },
  )

  check('A dead letter is kept with why, and is no longer pending', async (inbox) => {
    await inbox.put([message(1), message(2)])
    await inbox.claim(id(1))
    equal(await inbox.deadLetter(id(1), reason), 0)
    equal(await inbox.claim(id(1)), undefined)
    equal(inbox.usage().messages, 1)
    const [letter, ...others] = await inbox.deadLetters(10)
    equal(others, [])
    equal(letter && { ...letter, message: withoutEvent(letter.message) }, {
      ...{ id: id(1), ...reason },
      message: withoutEvent(message(1)),
    })
  })

  check('Dead letters are listed oldest first, at most so many', async (inbox) => {
    await inbox.put([message(1), message(2), message(3)])
    for (const n of [2, 3, 1]) await inbox.deadLetter(id(n), reason)
    const ids = async (limit: number): Promise<readonly string[]> =>
      (await inbox.deadLetters(limit)).map((letter) => letter.id)
    equal(await ids(10), [id(2), id(3), id(1)])
    equal(await ids(2), [id(2), id(3)])
  })

  check('What is gone does not become a dead letter', async (inbox) => {
    equal(await inbox.deadLetter(id(1), reason), 0)
    equal(await inbox.deadLetters(10), [])
  })

  check('A revived dead letter is a message again, under its id, as replayed, with no deliveries', async (inbox) => {
    await inbox.put([message(1)])
    await inbox.claim(id(1))
    await inbox.deadLetter(id(1), reason)
    const { lane, kind } = message(1)
    const revived = await inbox.revive(id(1))
    equal(revived && { id: revived.id, lane: revived.lane, kind: revived.kind }, { id: id(1), lane, kind })
    equal(await inbox.deadLetters(10), [])
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
      equal((await inbox.deadLetters(10)).length, 1)
    },
    { ...roomy, pendingMessages: 1 },
  )

  check('A discarded dead letter is gone', async (inbox) => {
    await inbox.put([message(1)])
    await inbox.deadLetter(id(1), reason)
    equal([await inbox.discard(id(1)), await inbox.discard(id(1))], [true, false])
    equal(await inbox.deadLetters(10), [])
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

  const { reopen } = subject
  if (reopen !== undefined) {
    check('A new process finds messages in the order in which they were put, whatever their ids', async (inbox) => {
      const numbers = Array.from({ length: 40 }, (_, n) => (n * 17) % 40)
      await Promise.all(numbers.map((n) => inbox.put([message(n)])))
      const again = await reopen(inbox, roomy)
      equal(await idsOf(again.recover()), numbers.map(id))
      await again.close()
    })
    check('A new process finds what was put and not settled, claimed or not, in order of arrival', async (inbox) => {
      await inbox.put([message(1), message(2)])
      await inbox.put([message(3), message(4)])
      await inbox.claim(id(1))
      await inbox.settle(id(2))
      await inbox.deadLetter(id(3), reason)
      const again = await reopen(inbox, roomy)
      equal(await idsOf(again.recover()), [id(1), id(4)])
      equal(again.usage().messages, 2)
      equal((await again.claim(id(1)))?.deliveries, 1)
      equal((await again.claim(id(4)))?.deliveries, 0)
      equal(
        (await again.deadLetters(10)).map((letter) => letter.id),
        [id(3)],
      )
      await again.close()
    })
  }
  return checks
}

async function idsOf(messages: AsyncIterable<{ readonly id: string }>): Promise<readonly string[]> {
  const ids: string[] = []
  for await (const found of messages) ids.push(found.id)
  return ids
}
