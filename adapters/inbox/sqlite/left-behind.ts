import { setImmediate } from 'node:timers/promises'
import type { Waiting } from '../../../src/inbox/inbox.ts'
import type { Health } from './health.ts'
import type { Page } from './store.ts'

export interface LeftBehind {
  readonly read: (after: number) => Promise<Page<Waiting>>
  readonly health: Health
  readonly isClosed: () => boolean
  /** The process that left it did not live to write down what it handed out. */
  readonly isSuspect: boolean
}

/** What an earlier process left, a page at a time. A file that fails meanwhile is waited for: nothing is passed over. */
export async function* leftBehind({
  read,
  health,
  isClosed,
  isSuspect,
}: LeftBehind): AsyncGenerator<readonly Waiting[]> {
  for (let next: number | undefined = -1; next !== undefined && !isClosed();) {
    let page: Page<Waiting>
    try {
      page = await read(next)
    } catch {
      await health.whenMended()
      continue
    }
    // All of it: that a message was not handed out is as little known as that it was.
    if (page.found.length > 0) yield isSuspect ? page.found.map((each) => ({ ...each, redelivered: true })) : page.found
    next = page.next
    await setImmediate()
  }
}
