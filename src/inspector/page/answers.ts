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

/** Members that only some kinds of items have. */
interface ItemDetails {
  readonly id?: string
  readonly vin?: string | null
  readonly event?: Event
  readonly outcome?: 'handled' | 'duplicate' | 'conflated' | 'lost'
  readonly lagMs?: number
  readonly attempt?: number
  readonly attempts?: number
  readonly handler?: string
  readonly error?: string
  readonly nextAt?: string
  readonly status?: number
  readonly hint?: string
  readonly isAuthentic?: boolean
  readonly vins?: readonly string[]
  readonly messages?: number
  readonly count?: number
  readonly test?: string
  readonly bytes?: number
  readonly encoding?: string
  readonly headers?: readonly { readonly name: string; readonly length: number }[]
}

/** An item of the feed. */
export interface Item extends ItemDetails {
  readonly kind: 'received' | 'settled' | 'failed' | 'dead' | 'refused' | 'gap' | 'test'
  readonly at: string
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

export interface Letter {
  readonly id: string
  readonly vin: string | null
  readonly topic: string
  readonly receivedAt: string
  readonly diedAt: string
  readonly attempts: number
  readonly error: string
}

export interface Place {
  readonly latitude: number
  readonly longitude: number
}

export interface VehicleInList {
  readonly vin: string
  readonly online: boolean | null
  readonly state: string | null
  readonly isOnlineCertain: boolean
  readonly seenAt: string | null
  readonly fields: number
  readonly location?: (Place & { readonly at: string }) | null
}

export interface Vehicle extends Omit<VehicleInList, 'fields' | 'location'> {
  readonly fields: Readonly<Record<string, FieldOfVehicle>>
}

interface FieldOfVehicle {
  /** Left out when payloads are hidden. */
  readonly value?: unknown
  readonly at: string
  readonly ageMs: number
  readonly isCertain: boolean
  readonly invalidSince?: string
}

export interface Stats {
  readonly received: number
  readonly lastReceivedAtMs?: number
  readonly handled: number
  readonly deadLettered: number
  readonly deadLettersDropped: number
  readonly lost: number
  readonly refused: Readonly<Record<string, number>>
  readonly pending: { readonly messages: number; readonly bytes: number }
  readonly inbox: {
    readonly bytes?: number
    readonly mostMessages?: number
    readonly deadLetters?: number
    readonly oldestWaitingMs?: number
    readonly spooled?: number
    readonly unopened?: readonly { readonly path: string; readonly messages: number; readonly deadLetters: number }[]
  }
  readonly running: number
  readonly lanes: number
  readonly resting: readonly { readonly handler: string; readonly since: string; readonly nextTryAt: string }[]
  readonly openGaps: number
  readonly drift: readonly { readonly field: string; readonly seen: string; readonly count: number }[]
  readonly drifted: number
  readonly draining: boolean
}

export interface About {
  readonly version: string
  readonly payloads: boolean
  readonly vehicles: boolean
  readonly ready?: { readonly ready: boolean; readonly reason?: string }
}

/** The receiver at one moment: counts since its start, and what waits and runs. */
export interface Sample {
  readonly at: string
  readonly received: number
  readonly handled: number
  readonly dead: number
  readonly refused: number
  readonly lost: number
  readonly waiting: number
  readonly oldestMs?: number
  /** Milliseconds from the end of the body to the answer, for messages since the sample before. */
  readonly ack?: { readonly count: number; readonly p50: number; readonly p99: number; readonly max: number }
}
