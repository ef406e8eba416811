import {
  type Archive,
  archiveOf,
  type Inbox,
  type InboxHost,
  type Opened,
  type Selection,
  type Waiting,
} from '../inbox/inbox.ts'
import { type Conformance, equal, rejects } from './expectations.ts'
import { id, message, reason, usualSettings, withoutEvent, lettersIn } from './kept-message.ts'

/** Makes the inboxes to check. */
export interface InboxUnderTest {
  /** A new, empty inbox within these limits. */
  create(settings: InboxHost): Inbox | Promise<Inbox>
  /**
   * For a durable inbox: an inbox as a new process opens it on the same data, after the process of `inbox` ended without
   * `close`. Left out for an inbox in memory.
   */
  reopen?(inbox: Inbox, settings: InboxHost): Inbox | Promise<Inbox>
  /**
   * `false` for a durable inbox that each message starts, so that it misses no message while it is not running. Such an inbox
   * reports no gap after a restart. Default `true`.
   */
  readonly reportsGaps?: boolean
}

/** Adds a check. The suite creates and opens an inbox for it. */
type Check = (name: string, run: (inbox: Inbox, opened: Opened) => Promise<void>, settings?: InboxHost) => void

/** The same for an inbox with an archive. */
type ArchiveCheck = (name: string, run: (inbox: Inbox, archive: Archive) => Promise<void>, settings?: InboxHost) => void

type Reopen = NonNullable<InboxUnderTest['reopen']>

/**
 * The checks that every inbox must pass. For authors of an inbox. Runs under any test runner.
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
  const check: Check = (name, run, settings = usualSettings) => {
    checks.push({
      name,
      async run() {
        const inbox = await subject.create(settings)
        await run(inbox, await inbox.open())
        await inbox.close()
      },
    })
  }

  const checkArchive = (
    name: string,
    run: (inbox: Inbox, archive: Archive) => Promise<void>,
    settings?: InboxHost,
  ): void =>
    check(
      name,
      async (inbox) => {
        const archive = archiveOf(inbox)
        if (archive !== undefined) await run(inbox, archive)
      },
      settings,
    )

  keepingChecks(check)
  countingChecks(check)
  limitChecks(check)
  letterChecks(check, checkArchive)
  listingChecks(checkArchive)
  replayChecks(checkArchive)
  if (subject.reopen !== undefined) {
    recoveryChecks(subject.reopen, check)
    restartChecks(subject.reopen, subject.reportsGaps ?? true, check)
  }
  return checks
}

/** A message is kept as it was put. */
function keepingChecks(check: Check): void {
  check('A new inbox is empty', async (inbox, { waiting, gaps = [] }) => {
    equal(inbox.usage(), { messages: 0, bytes: 0 })
    equal(inbox.refusing(), undefined)
    equal(gaps, [])
    equal(await idsOf(waiting), [])
    equal(await lettersIn(inbox, { limit: 10 }), [])
  })

  check('A claimed message is as it was put', async (inbox) => {
    await inbox.put([message(1)])
    const claim = await inbox.claim(id(1))
    equal(claim && withoutEvent(claim.message), withoutEvent(message(1)))
    equal({ deliveries: claim?.deliveries, replayed: claim?.replayed }, { deliveries: 0, replayed: false })
  })

  check('A text is kept as it came, also where JavaScript writes it in another way', async (inbox) => {
    const text = '{"n":9007199254740993, "m":1e400,"m":-0,"2":"\\u0041\\ud800","1":"\u{1f600}"}'
    await inbox.put([{ ...message(1), text }])
    equal((await inbox.claim(id(1)))?.message.text, text)
  })

  check('A gap and a malformed body keep their kind', async (inbox) => {
    const kinds = ['gap', 'malformed'] as const
    await inbox.put(kinds.map((kind, n) => ({ ...message(n), kind })))
    for (const [n, kind] of kinds.entries()) equal((await inbox.claim(id(n)))?.message.kind, kind)
  })

  check('A message that was never put, or that is settled, cannot be claimed', async (inbox) => {
    equal(await inbox.claim(id(1)), undefined)
    await inbox.put([message(1)])
    await inbox.claim(id(1))
    await inbox.settle(id(1))
    equal(await inbox.claim(id(1)), undefined)
    equal(inbox.usage(), { messages: 0, bytes: 0 })
  })

  check('Many puts at once are all kept', async (inbox) => {
    const numbers = Array.from({ length: 200 }, (_, n) => n)
    await Promise.all(numbers.map(async (n) => inbox.put([message(n)])))
    equal(inbox.usage().messages, 200)
    const claims = await Promise.all(numbers.map(async (n) => inbox.claim(id(n))))
    equal(
      claims.map((claim) => claim?.message.id),
      numbers.map(id),
    )
  })

  check('A put after close is rejected', async (inbox) => {
    await inbox.close()
    await rejects(() => inbox.put([message(1)]), 'inbox_unavailable')
  })
}

/** What waits is counted, and so is what an erasure takes. */
function countingChecks(check: Check): void {
  check(
    'Erasing a vehicle takes its messages, messages of no vehicle that have its VIN in any case, and no other',
    async (inbox) => {
      const texts = [
        ['GONE', '{"vin":"GONE"}'],
        ['STAYS', '{"vin":"STAYS","note":"GONE"}'],
        ['*malformed', '{"vin":"gOne","broken'],
        ['*malformed', '{"vin":"other","broken'],
        ['**starred', '{"note":"GONE"}'],
      ] as const
      await inbox.put(texts.map(([lane, text], n) => ({ ...message(n), lane, text })))
      if (inbox.forget === undefined) return
      const counts = async (dryRun: boolean): Promise<unknown> => {
        const { messages, waiting, deadLetters } = (await inbox.forget?.('GONE', dryRun)) ?? {}
        return { messages, waiting, deadLetters }
      }
      for (const dryRun of [true, false]) equal(await counts(dryRun), { messages: 2, waiting: 2, deadLetters: 0 })
      equal(await counts(true), { messages: 0, waiting: 0, deadLetters: 0 })
      const kept = await Promise.all(texts.map(async (_, n) => (await inbox.claim(id(n))) !== undefined))
      equal(kept, [false, true, false, true, true])
    },
  )

  check('Settling a message that is not there does nothing', async (inbox) => {
    await inbox.put([message(1), message(2)])
    await inbox.settle(id(1))
    await inbox.settle(id(1))
    await inbox.settle(id(9))
    equal(inbox.usage().messages, 1)
  })

  check('Usage counts messages and bytes, both waiting and claimed', async (inbox) => {
    await inbox.put([message(1, 100), message(2, 50)])
    equal(inbox.usage(), { messages: 2, bytes: 150 })
    await inbox.claim(id(1))
    equal(inbox.usage(), { messages: 2, bytes: 150 })
    await inbox.settle(id(1))
    equal(inbox.usage(), { messages: 1, bytes: 50 })
  })

  check('A claim has the number of earlier claims, with or without a reschedule', async (inbox) => {
    await inbox.put([message(1)])
    equal((await inbox.claim(id(1)))?.deliveries, 0)
    await inbox.settle(id(1), { as: 'later', next: { attempts: 1, notBefore: 0 } })
    equal((await inbox.claim(id(1)))?.deliveries, 1)
    equal((await inbox.claim(id(1)))?.deliveries, 2)
  })
}

/** Nothing is kept beyond the limits. */
function limitChecks(check: Check): void {
  check(
    'Full by messages: a put is kept whole or rejected whole with inbox_full, and a settle makes room',
    async (inbox) => {
      await inbox.put([message(1), message(2)])
      await rejects(() => inbox.put([message(3), message(4)]), 'inbox_full')
      equal(inbox.usage().messages, 2)
      equal(await inbox.claim(id(3)), undefined)
      await inbox.put([message(5)])
      await rejects(() => inbox.put([message(6)]), 'inbox_full')
      await inbox.settle(id(1))
      await inbox.put([message(7)])
      equal(inbox.usage().messages, 3)
    },
    { ...usualSettings, limits: { ...usualSettings.limits, pendingMessages: 3 } },
  )

  check(
    'Full by bytes',
    async (inbox) => {
      await inbox.put([message(1, 60)])
      await rejects(() => inbox.put([message(2, 41)]), 'inbox_full')
      await inbox.put([message(3, 40)])
      equal(inbox.usage(), { messages: 2, bytes: 100 })
    },
    { ...usualSettings, limits: { ...usualSettings.limits, pendingBytes: 100 } },
  )

  check(
    'What no empty inbox takes is rejected with body_too_large, and the next put is kept',
    async (inbox) => {
      await rejects(() => inbox.put([message(1, 101)]), 'body_too_large')
      await rejects(() => inbox.put([message(2, 1), message(3, 1), message(4, 1)]), 'body_too_large')
      equal(inbox.usage(), { messages: 0, bytes: 0 })
      equal(inbox.refusing(), undefined)
      await inbox.put([message(5, 50), message(6, 50)])
      await rejects(() => inbox.put([message(7, 101)]), 'body_too_large')
    },
    { ...usualSettings, limits: { pendingMessages: 2, pendingBytes: 100 } },
  )
}

/** Dead letters are kept and listed. */
function letterChecks(check: Check, checkArchive: ArchiveCheck): void {
  checkArchive('A dead letter is kept with its reason, and is no longer pending', async (inbox) => {
    await inbox.put([message(1), message(2)])
    await inbox.claim(id(1))
    equal(await inbox.settle(id(1), { as: 'dead', reason }), undefined)
    equal(await inbox.claim(id(1)), undefined)
    equal(inbox.usage().messages, 1)
    const [letter, ...others] = await lettersIn(inbox, { limit: 10 })
    equal(others, [])
    equal(letter && { ...letter, message: withoutEvent(letter.message) }, {
      id: id(1),
      ...reason,
      message: withoutEvent(message(1)),
    })
  })

  checkArchive('Dead letters are listed by id, page by page, and can be selected by lane and time', async (inbox) => {
    await inbox.put([message(1), { ...message(2), lane: 'OTHER' }, message(3)])
    for (const n of [2, 3, 1]) await inbox.settle(id(n), { as: 'dead', reason })
    const ids = async (which: Selection): Promise<readonly string[]> =>
      (await lettersIn(inbox, which)).map((letter) => letter.id)
    equal(await ids({ limit: 10 }), [id(1), id(2), id(3)])
    equal(await ids({ limit: 2 }), [id(1), id(2)])
    equal(await ids({ limit: 2, after: id(2) }), [id(3)])
    equal(await ids({ limit: 10, lane: 'OTHER' }), [id(2)])
    equal(await ids({ limit: 10, fromMs: message(2).receivedAt, toMs: message(3).receivedAt }), [id(2)])
    equal(
      (await lettersIn(inbox, { id: id(2), limit: 1 })).map((letter) => letter.message.lane),
      ['OTHER'],
    )
    equal(await lettersIn(inbox, { id: id(9), limit: 1 }), [])
  })

  check('A message that is not there does not become a dead letter', async (inbox) => {
    equal(await inbox.settle(id(1), { as: 'dead', reason }), undefined)
    equal(await lettersIn(inbox, { limit: 10 }), [])
  })

  checkArchive('A discarded dead letter is deleted', async (inbox, archive) => {
    await inbox.put([message(1)])
    await inbox.settle(id(1), { as: 'dead', reason })
    equal([await archive.discard(id(1)), await archive.discard(id(1))], [true, false])
    equal(await lettersIn(inbox, { limit: 10 }), [])
    equal(await archive.revive(id(1)), undefined)
  })
}

/** Messages of every state are listed. */
function listingChecks(checkArchive: ArchiveCheck): void {
  checkArchive(
    'Messages of every state are listed newest first, page by page, by lane and by time',
    async (inbox, archive) => {
      equal(await archive.list('all', { limit: 10 }), [])
      await inbox.put([message(1), { ...message(2), lane: 'OTHER' }, message(3), message(4)])
      await inbox.claim(id(3))
      await inbox.settle(id(2), { as: 'dead', reason })
      const listed = async (which: Selection): Promise<readonly string[]> =>
        (await archive.list('all', which)).map((found) => found.message.id)
      equal(await listed({ limit: 10 }), [id(4), id(3), id(2), id(1)])
      equal(await listed({ limit: 2 }), [id(4), id(3)])
      equal(await listed({ limit: 2, after: id(3) }), [id(2), id(1)])
      equal(await listed({ limit: 10, after: id(1) }), [])
      equal(await listed({ limit: 1, id: id(3) }), [id(3)])
      equal(await listed({ limit: 1, id: id(9) }), [])
      equal(await listed({ limit: 10, lane: 'OTHER' }), [id(2)])
      equal(await listed({ limit: 10, lane: 'NONE' }), [])
      equal(await listed({ limit: 10, fromMs: message(2).receivedAt, toMs: message(4).receivedAt }), [id(3), id(2)])
      const [newest, , dead] = await archive.list('all', { limit: 3 })
      equal(newest && { state: newest.state, ...withoutEvent(newest.message) }, {
        state: 'waiting',
        ...withoutEvent(message(4)),
      })
      equal(dead && { state: dead.state, reason: dead.reason }, { state: 'dead', reason })
      await inbox.settle(id(1))
      const oldest = (await archive.list('all', { limit: 10, after: id(2) })).at(0)
      // An inbox may drop a message as soon as it is settled.
      equal(oldest?.state ?? 'settled', 'settled')
    },
  )

  checkArchive(
    'A page ends with the message that reaches 1 MiB, and the next pages have the rest',
    async (inbox, archive) => {
      const numbers = [1, 2, 3, 4, 5]
      await inbox.put(numbers.map((n) => message(n, 600_000)))
      for (const n of numbers) await inbox.settle(id(n), { as: 'dead', reason })
      const pages: (readonly string[])[] = []
      for (let after: string | undefined, isEnd = false; !isEnd;) {
        const page = (await lettersIn(inbox, { limit: 10, after })).map((letter) => letter.id)
        after = page.at(-1)
        isEnd = after === undefined
        if (!isEnd) pages.push(page)
      }
      equal(pages, [[id(1), id(2)], [id(3), id(4)], [id(5)]])
      const listed = await archive.list('all', { limit: 10 })
      equal(
        listed.map((each) => each.message.id),
        [id(5), id(4)],
      )
    },
    { ...usualSettings, limits: { ...usualSettings.limits, pendingBytes: 4_000_000 } },
  )
}

/** A dead letter or a settled message is handled again. */
function replayChecks(checkArchive: ArchiveCheck): void {
  checkArchive(
    'A revived dead letter is a message again, with the same id, marked as replayed, with no deliveries',
    async (inbox, archive) => {
      await inbox.put([message(1)])
      await inbox.claim(id(1))
      await inbox.settle(id(1), { as: 'dead', reason })
      const { lane, kind } = message(1)
      const revived = await archive.revive(id(1))
      equal(revived && { id: revived.id, lane: revived.lane, kind: revived.kind }, { id: id(1), lane, kind })
      equal(await lettersIn(inbox, { limit: 10 }), [])
      equal(inbox.usage().messages, 1)
      const claim = await inbox.claim(id(1))
      equal({ deliveries: claim?.deliveries, replayed: claim?.replayed }, { deliveries: 0, replayed: true })
      equal(await archive.revive(id(1)), undefined)
    },
  )

  checkArchive(
    'Each replay of a settled message has a name, which its claims and its dead letter keep',
    async (inbox, archive) => {
      await inbox.put([message(1)])
      await inbox.claim(id(1))
      await inbox.settle(id(1), { as: 'dead', reason })
      await archive.revive(id(1))
      // It goes on with the first run, which has no name.
      equal((await inbox.claim(id(1)))?.replay, undefined)
      await inbox.settle(id(1))
      // An inbox may drop a message as soon as it is settled.
      if ((await archive.revive(id(1))) === undefined) return
      const first = (await inbox.claim(id(1)))?.replay
      equal(typeof first, 'string')
      await inbox.settle(id(1), { as: 'later', next: { attempts: 1, notBefore: 0 } })
      equal((await inbox.claim(id(1)))?.replay, first)
      await inbox.settle(id(1), { as: 'dead', reason })
      await archive.revive(id(1))
      equal((await inbox.claim(id(1)))?.replay, first)
      await inbox.settle(id(1))
      await archive.revive(id(1))
      equal((await inbox.claim(id(1)))?.replay === first, false)
    },
  )

  checkArchive(
    'A dead letter stays one when there is no room to revive it',
    async (inbox, archive) => {
      await inbox.put([message(1)])
      await inbox.settle(id(1), { as: 'dead', reason })
      await inbox.put([message(2)])
      await rejects(() => archive.revive(id(1)), 'inbox_full')
      equal((await lettersIn(inbox, { limit: 10 })).length, 1)
    },
    { ...usualSettings, limits: { ...usualSettings.limits, pendingMessages: 1 } },
  )
}

/** What a new process finds in a durable inbox: the messages that wait. */
function recoveryChecks(reopen: Reopen, check: Check): void {
  check('A new process finds the messages that are not settled, claimed or not, in the order of ids', async (inbox) => {
    await inbox.put([message(1), message(2)])
    await inbox.put([message(3), message(4)])
    await inbox.claim(id(1))
    await inbox.settle(id(2))
    await inbox.settle(id(3), { as: 'dead', reason })
    // A settle or a claim need not be durable at once. It is durable with the next put.
    await inbox.put([message(5)])
    const again = await reopen(inbox, usualSettings)
    const { waiting, lastId } = await again.open()
    equal(await idsOf(waiting), [id(1), id(4), id(5)])
    equal(lastId, id(5))
    equal(again.usage().messages, 3)
    equal((await again.claim(id(1)))?.deliveries, 1)
    // It was not handed out. An inbox that writes claims late cannot know that.
    equal([0, 1].includes((await again.claim(id(4)))?.deliveries ?? -1), true)
    if (again.archive !== undefined)
      equal(
        (await lettersIn(again, { limit: 10 })).map((letter) => letter.id),
        [id(3)],
      )
    await again.close()
  })
  check('A new process finds the attempts of a message and the time of its next one', async (inbox) => {
    await inbox.put([message(1)])
    await inbox.claim(id(1))
    await inbox.settle(id(1), { as: 'later', next: { attempts: 3, notBefore: 1_800_000_000_000 } })
    await inbox.put([message(2)])
    const again = await reopen(inbox, usualSettings)
    const [first] = await all((await again.open()).waiting)
    equal(
      { id: first?.id, attempts: first?.attempts, notBefore: first?.notBefore },
      { id: id(1), attempts: 3, notBefore: 1_800_000_000_000 },
    )
    await again.close()
  })
}

/** What else it finds: the time in which nobody ran, and the last id. */
function restartChecks(reopen: Reopen, reportsGaps: boolean, check: Check): void {
  check(
    `A new process ${reportsGaps ? 'reports' : 'does not report'} a gap when the inbox was not closed`,
    async (inbox) => {
      await inbox.put([message(1)])
      const again = await reopen(inbox, usualSettings)
      equal(
        (await again.open()).gaps?.map((gap) => gap.reason),
        reportsGaps ? ['restarted'] : undefined,
      )
      await again.close()
      const last = await reopen(again, usualSettings)
      // An inbox can report that it was closed for a while.
      equal((await last.open()).gaps?.filter((gap) => gap.reason !== 'stopped') ?? [], [])
      await last.close()
    },
  )
  check('A new process finds the last id, even when no message is left', async (inbox) => {
    await inbox.put([message(1), message(2)])
    await inbox.settle(id(1))
    await inbox.settle(id(2))
    await inbox.close()
    const again = await reopen(inbox, usualSettings)
    const { lastId, waiting } = await again.open()
    equal(lastId, id(2))
    equal(await idsOf(waiting), [])
    await again.close()
  })
  check('A new process finds 300 messages in the order of ids', async (inbox) => {
    const numbers = Array.from({ length: 300 }, (_, n) => n)
    await Promise.all(numbers.map(async (n) => inbox.put([message(n)])))
    const again = await reopen(inbox, usualSettings)
    equal(await idsOf((await again.open()).waiting), numbers.map(id))
    await again.close()
  })
}

async function all(pages: AsyncIterable<readonly Waiting[]>): Promise<readonly Waiting[]> {
  const found: Waiting[] = []
  for await (const page of pages) found.push(...page)
  return found
}

async function idsOf(pages: AsyncIterable<readonly Waiting[]>): Promise<readonly string[]> {
  return (await all(pages)).map((waiting) => waiting.id)
}
