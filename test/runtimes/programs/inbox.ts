import { type Durability, memoryInbox } from '../../../src/index.ts'
import type { InboxFactory } from '../../../src/extend.ts'

/**
 * An inbox for tests. It reports the durability that a test chooses, stores when the test allows it, and reports what it
 * stored.
 */
export function inboxOf(wanted: {
  readonly durability: Durability
  readonly ready: () => Promise<void>
  readonly stored: (vin: string | undefined) => void
}): InboxFactory {
  const { durability, ready, stored } = wanted
  return (settings) => {
    const inbox = memoryInbox()(settings)
    return {
      ...inbox,
      durability,
      async put(messages) {
        await ready()
        await inbox.put(messages)
        for (const { event } of messages) stored(event?.topic === 'malformed' ? undefined : event?.vin)
      },
    }
  }
}
