import type { Stats as ReceiverStats } from '../../observe/stats.ts'
import type { ShownEvent, ShownItem } from '../../operator/feed.ts'

export type { ShownEvent as Event, ShownItem as Item } from '../../operator/feed.ts'

/** The JSON answers of the routes below the mount. Times are ISO 8601 in UTC. */

export interface StoredMessage {
  readonly id: string
  readonly state: 'waiting' | 'settled' | 'dead'
  readonly event: ShownEvent
  /** The message as it came, where `event.raw` is written in another way. */
  readonly text?: string
  readonly death?: { readonly error: string; readonly attempts: number; readonly diedAt: string }
  readonly handlers?: readonly string[]
  /** The items that the feed still has about it. */
  readonly happened?: readonly ShownItem[]
}

/** A value as JSON has it: times are text. */
type AsJson<Value> = Value extends Date
  ? string
  : Value extends object
    ? { readonly [Name in keyof Value]: AsJson<Value[Name]> }
    : Value

export type Stats = AsJson<ReceiverStats>

export interface About {
  readonly version: string
  readonly payloads: boolean
  readonly vehicles: boolean
  readonly branches?: readonly string[]
  readonly ready?: { readonly ready: boolean; readonly reason?: string }
}
