import type { InboxSettings } from 'fleethook'
import { systemClock } from '../../src/clock.ts'
import type { Opened, Waiting } from '../../src/inbox/inbox.ts'

/** What an inbox told its receiver, and its operator. */
export interface Told {
  readonly log: string[]
  readonly holes: string[]
  roomy: number
}

const silent = (): void => {}

/** Settings that keep what they are told. */
export function settingsOf(more: Partial<InboxSettings> = {}): {
  readonly settings: InboxSettings
  readonly told: Told
} {
  const told: Told = { log: [], holes: [], roomy: 0 }
  const say = (message: string): void => void told.log.push(message)
  const settings: InboxSettings = {
    pendingMessages: undefined,
    pendingBytes: undefined,
    overflow: 'refuse',
    clock: systemClock,
    log: { debug: silent, info: say, warn: say, error: say },
    conflated: silent,
    failed: silent,
    roomy: () => {
      told.roomy += 1
    },
    holed: ({ reason }) => void told.holes.push(reason),
    ...more,
  }
  return { settings, told }
}

export async function waitingIn({ waiting }: Opened): Promise<readonly Waiting[]> {
  const found: Waiting[] = []
  for await (const page of waiting) found.push(...page)
  return found
}
