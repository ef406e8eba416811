import type { InboxHost, Opened, Waiting } from 'fleethook/extend'
import { readsNothing } from '../../adapters/inbox/forwarding.ts'
import { systemClock } from '../../src/base/clock.ts'

/** What an inbox logged and reported to its receiver. */
export interface Reported {
  readonly log: string[]
  /** The reasons of gaps that were found while the inbox was open. */
  readonly gaps: string[]
  /** The number of times that it reported that it takes messages again. */
  capacityReports: number
}

const silent = (): void => {}

/** Settings that record what the inbox reports. */
export function settingsOf(more: Partial<InboxHost> = {}): {
  readonly settings: InboxHost
  readonly reported: Reported
} {
  const reported: Reported = { log: [], gaps: [], capacityReports: 0 }
  const say = (message: string): void => void reported.log.push(message)
  const settings: InboxHost = {
    limits: { pendingMessages: undefined, pendingBytes: undefined },
    read: readsNothing,
    clock: systemClock,
    log: { debug: silent, info: say, warn: say, error: say },
    ...more,
    on(event) {
      if (event.type === 'available') reported.capacityReports += 1
      if (event.type === 'gap') reported.gaps.push(event.gap.reason)
      more.on?.(event)
    },
  }
  return { settings, reported }
}

export async function waitingIn({ waiting }: Opened): Promise<readonly Waiting[]> {
  const found: Waiting[] = []
  for await (const page of waiting) found.push(...page)
  return found
}
