import type { Stats as ReceiverStats } from '../../inbox/stats.ts'

/** The JSON answers of the routes below the mount. Times are ISO 8601 in UTC. */

/** An event, or a malformed body. Members that its topic does not have are left out, and so are payloads when they are hidden. */
export interface Event {
  readonly topic: string
  readonly id?: string
  readonly vin?: string
  readonly createdAt?: string
  readonly receivedAt: string
  readonly format?: string | null
  readonly raw?: unknown
  readonly meta?: Readonly<Record<string, unknown>>
  readonly data?: Readonly<Record<string, unknown>>
  readonly undecoded?: Readonly<Record<string, unknown>>
  /** The names of the fields of `data`, when payloads are hidden. */
  readonly fields?: readonly string[]
  readonly [member: string]: unknown
}

export interface Item {
  readonly kind: 'received' | 'settled' | 'failed' | 'dead' | 'refused' | 'gap' | 'test'
  readonly at: string
  // Only some kinds of items have what follows.
  readonly id?: string
  readonly vin?: string | null
  readonly event?: Event
  readonly outcome?: 'handled' | 'duplicate' | 'lost'
  readonly lagMs?: number
  readonly attempt?: number
  readonly attempts?: number
  readonly handler?: string
  readonly error?: string
  readonly nextAt?: string
  readonly status?: number
  readonly hint?: string
  readonly isAuthentic?: boolean
  readonly isTest?: boolean
  readonly vins?: readonly string[]
  readonly messages?: number
  readonly count?: number
  readonly test?: string
  readonly bytes?: number
  readonly encoding?: string
  readonly headers?: readonly { readonly name: string; readonly length: number }[]
}

/** A message that the inbox keeps. */
export interface StoredMessage {
  readonly id: string
  readonly state: 'waiting' | 'settled' | 'dead'
  readonly event: Event
  readonly death?: { readonly error: string; readonly attempts: number; readonly diedAt: string }
  /** The names of the handlers that it is for. */
  readonly handlers?: readonly string[]
  /** The items that the feed still has about it. */
  readonly happened?: readonly Item[]
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
  readonly ready?: { readonly ready: boolean; readonly reason?: string }
}
