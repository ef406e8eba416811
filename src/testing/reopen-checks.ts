import type { Inbox, InboxSettings, Opened, Waiting } from '../inbox/inbox.ts'
import { equal } from './expectations.ts'
import type { InboxUnderTest } from './inbox-conformance.ts'
import { id, message, reason } from './kept-message.ts'

/** Notes one check of an inbox, which is made and opened for it. */
export type Check = (
  name: string,
  run: (inbox: Inbox, opened: Opened) => Promise<void>,
  settings?: InboxSettings,
) => void

/** What a new process finds in a durable inbox. */
export function reopenChecks(
  { reopen, tellsOfHoles = true }: InboxUnderTest,
  check: Check,
  onCapacity: InboxSettings,
): void {
  if (reopen === undefined) return
  check('A new process finds what was put and not settled, claimed or not, in the order of ids', async (inbox) => {
    await inbox.put([message(1), message(2)])
    await inbox.put([message(3), message(4)])
    await inbox.claim(id(1))
    await inbox.settle(id(2))
    await inbox.deadLetter(id(3), reason)
    // What is settled, or handed out, need not be durable at once: it is with the next message that is put.
    await inbox.put([message(5)])
    const again = await reopen(inbox, onCapacity)
    const { waiting, lastId } = await again.open()
    equal(await idsOf(waiting), [id(1), id(4), id(5)])
    equal(lastId, id(5))
    equal(again.usage().messages, 3)
    equal((await again.claim(id(1)))?.deliveries, 1)
    equal((await again.claim(id(4)))?.deliveries, 0)
    equal(
      (await again.deadLetters({ limit: 10 })).map((letter) => letter.id),
      [id(3)],
    )
    await again.close()
  })
  check('A new process finds how often a message was tried, and when it is to be tried again', async (inbox) => {
    await inbox.put([message(1)])
    await inbox.claim(id(1))
    await inbox.reschedule(id(1), { attempts: 3, notBefore: 1_800_000_000_000 })
    await inbox.put([message(2)])
    const again = await reopen(inbox, onCapacity)
    const [first] = await all((await again.open()).waiting)
    equal(
      { id: first?.id, attempts: first?.attempts, notBefore: first?.notBefore },
      { id: id(1), attempts: 3, notBefore: 1_800_000_000_000 },
    )
    await again.close()
  })
  check(
    `A new process ${tellsOfHoles ? 'knows' : 'need not know'} that the one before it was not closed`,
    async (inbox) => {
      await inbox.put([message(1)])
      const again = await reopen(inbox, onCapacity)
      equal(
        (await again.open()).gaps?.map((gap) => gap.reason),
        tellsOfHoles ? ['restarted'] : undefined,
      )
      await again.close()
      const last = await reopen(again, onCapacity)
      equal((await last.open()).gaps ?? [], [])
      await last.close()
    },
  )
  check('A new process finds the last id that was put, also when nothing is left', async (inbox) => {
    await inbox.put([message(1), message(2)])
    await inbox.settle(id(1))
    await inbox.settle(id(2))
    await inbox.close()
    const again = await reopen(inbox, onCapacity)
    const { lastId, waiting } = await again.open()
    equal(lastId, id(2))
    equal(await idsOf(waiting), [])
    await again.close()
  })
  check('Messages of which a new process must find all are found in the order of ids', async (inbox) => {
    const numbers = Array.from({ length: 300 }, (_, n) => n)
    await Promise.all(numbers.map((n) => inbox.put([message(n)])))
    const again = await reopen(inbox, onCapacity)
    equal(await idsOf((await again.open()).waiting), numbers.map(id))
    await again.close()
  })
}

async function all(pages: AsyncIterable<readonly Waiting[]>): Promise<readonly Waiting[]> {
  const found: Waiting[] = []
  for await (const page of pages) found.push(...page)
  return found
}

export async function idsOf(pages: AsyncIterable<readonly Waiting[]>): Promise<readonly string[]> {
  return (await all(pages)).map((waiting) => waiting.id)
}
