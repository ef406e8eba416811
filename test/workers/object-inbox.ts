// The inbox inside a Durable Object. No entry of the package has it, because only the object creates it.
import { ObjectInbox } from '../../adapters/inbox/durable-object/object-inbox.ts'
import type { ObjectStorage } from '../../adapters/inbox/durable-object.ts'
import type { InboxHost } from '../../src/extend.ts'
import { memoryVehicles, usualSettings } from '../../src/testing/kept-message.ts'

interface Given extends Partial<InboxHost> {
  readonly keepsVehicles?: boolean
  readonly pendingMessages?: number
  readonly pendingBytes?: number
  readonly maxBytes: number
  readonly dead: { readonly forMs: number; readonly maxBytes: number }
  /** Dead letters that were received at these times were deleted. */
  readonly dropped?: (receivedAtMs: readonly number[]) => void
}

export function objectInbox(storage: ObjectStorage, given: Given): ObjectInbox {
  const { maxBytes, dead, dropped, keepsVehicles = false, pendingMessages, pendingBytes, ...settings } = given
  const { limits } = usualSettings
  return new ObjectInbox(
    storage,
    { maxBytes, dead, kept: () => {} },
    {
      ...usualSettings,
      limits: {
        pendingMessages: pendingMessages ?? limits.pendingMessages,
        pendingBytes: pendingBytes ?? limits.pendingBytes,
      },
      states: keepsVehicles ? memoryVehicles : undefined,
      ...settings,
      on(event) {
        if (event.type !== 'gap') return
        const { fromMs, toMs = fromMs } = event.gap
        dropped?.(fromMs === toMs ? [fromMs] : [fromMs, toMs])
      },
    },
  )
}
