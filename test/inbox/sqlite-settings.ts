import type { InboxSettings } from 'fleethook'
import { systemClock } from '../../src/base/clock.ts'
import type { Opened, Waiting } from '../../src/inbox/inbox.ts'

/** What an inbox told its receiver, and its operator. */
export interface Told {
  readonly log: string[]
  readonly holes: string[]
  onCapacity: number
}

const silent = (): void => {}

/** Settings that keep what they are told. */
export function settingsOf(more: Partial<InboxSettings> = {}): {
  readonly settings: InboxSettings
  readonly told: Told
} {
  const told: Told = { log: [], holes: [], onCapacity: 0 }
  const say = (message: string): void => void told.log.push(message)
  const settings: InboxSettings = {
    pendingMessages: undefined,
    pendingBytes: undefined,
    overflow: 'refuse',
    clock: systemClock,
    log: { debug: silent, info: say, warn: say, error: say },
    onConflated: silent,
    onFailure: silent,
    onCapacity: () => {
      told.onCapacity += 1
    },
    onGap: ({ reason }) => void told.holes.push(reason),
    ...more,
  }
  return { settings, told }
}

export async function waitingIn({ waiting }: Opened): Promise<readonly Waiting[]> {
  const found: Waiting[] = []
  for await (const page of waiting) found.push(...page)
  return found
}
