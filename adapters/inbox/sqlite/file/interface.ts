import type { Believed } from '../../../../src/base/believed-time.ts'
import type { OpenOptions } from '../../../../src/hosting/drainable.ts'
import type {
  Claim,
  DeadLetter,
  DeadLetterReason,
  InboxGap,
  InboxMessage,
  KeptGap,
  ListedMessage,
  OwedBranch,
  Selection,
  Waiting,
} from '../../../../src/inbox/inbox.ts'
import type { Forgotten } from '../../../../src/observe/dead-letters.ts'
import type { LastFailure, UnopenedInbox } from '../../../../src/observe/stats.ts'
import type { Due, StoredVehicle } from '../../../../src/inbox/vehicle-store.ts'

/** All that touches the disk. It may run in a thread, so what it takes and returns is plain data. */
export interface InboxFile {
  open(sign: SignOfLife, options?: OpenOptions): Promise<OpenedFile>
  /** Messages that wait, in order, from the first one after this `seq`. */
  waiting(after: number): Promise<Page<Waiting>>
  /** Writes all of the transaction and syncs it to the disk, or writes nothing. */
  commit(transaction: Transaction): Promise<Committed>
  /** A pending message. */
  find(seq: number): Promise<Claim | undefined>
  /** A message, whether pending, dead or settled. */
  message(seq: number): Promise<InboxMessage | undefined>
  deadLetters(which: Selection, after: number): Promise<Page<DeadLetter>>
  settled(which: Selection, after: number): Promise<Page<InboxMessage>>
  /** Messages of every state, newest first, from the one before this `seq`. */
  messages(which: Selection, before: number): Promise<Page<ListedMessage>>
  /** Rejects when the file or its journal was deleted, renamed or replaced. Else adds a piece to the reserve. */
  check(): Promise<void>
  /** Writes the sign of life, then does one bounded step of retention and of shrinking the file. */
  tidy(sign: SignOfLife, pendingBytes: number): Promise<Tidied>
  /** Drops what is kept for replays as far as needed. Resolves to whether the disk and the budget have room again. */
  probe(): Promise<boolean>
  /** Messages that are settled or given up, and that the stored states may lack. */
  unapplied(after: number): Promise<Page<InboxMessage>>
  vehicle(vin: string): Promise<VehicleRow | undefined>
  /** In the order of VINs. Fewer than `limit` when they are large, and none after the last one. */
  vehicles(after: string, limit: number): Promise<readonly VehicleRow[]>
  /** The first timers of vehicles in the order of VINs, in pages. */
  dueVehicles(after: string): Promise<readonly Due[]>
  /** States with other rules than these, in the order of VINs, in pages. */
  outdatedVehicles(rules: string, after: string): Promise<readonly VehicleRow[]>
  countVehicles(): Promise<number>
  /** Deletes some states of vehicles that were not seen since `ms`. Resolves to their number; 0 when none is left. */
  removeUnseen(ms: number): Promise<number>
  /** Deletes the messages of a vehicle in the next part of the file, after this `seq`. `dryRun`: only counts them. */
  forget(vin: string, after: number, dryRun: boolean): Promise<ForgottenPage>
  /** Deletes the rest about it, and does a part of what leaves no byte of it in the file and its journal. Resolves to whether there is more to do. */
  scrub(vin: string): Promise<boolean>
  /** The files beside this one that an erasure does not reach. */
  notReached(sign: SignOfLife): Promise<readonly string[]>
  /** Closes the file. Without a sign of life, the next process takes the end of this one for a crash. */
  close(sign?: SignOfLife): Promise<void>
}

/** What a process writes into the file every 10 seconds, and when it ends. */
export interface SignOfLife {
  readonly nowMs: number
  /** The time that deletes what is too old. Default `nowMs`, and what the file has stays. */
  readonly believed?: Believed | undefined
  /** How long the machine has been running, if that is known. Changes of the clock do not affect it. */
  readonly uptimeMs?: number | undefined
  /** The gaps that no stored event reports. Left out: those in the file stay. */
  readonly gaps?: readonly KeptGap[] | undefined
  /** The branches that lack messages. Left out: those in the file stay. */
  readonly owed?: readonly OwedBranch[] | undefined
  /** Whether the receiver keeps states of vehicles. Used at `open`. */
  readonly keepsVehicles?: boolean | undefined
  /** The files of the receiver and its branches. Left out: only this one. */
  readonly files?: readonly string[] | undefined
  /** It is that of a branch. */
  readonly isBranch?: boolean | undefined
}

export interface ForgottenPage extends Forgotten, FileFigures {
  /** Those that waited, of every kind, and their size. */
  readonly pending: { readonly messages: number; readonly bytes: number }
  readonly next: number | undefined
}

export interface VehicleRow extends Omit<StoredVehicle, 'text' | 'bytes'> {
  readonly text: string
}

export interface VehicleWrites {
  readonly rows: readonly VehicleRow[]
  readonly forgotten: readonly string[]
  /** Everything settled up to this `seq` is in the rows now. Left out: as before. */
  readonly seq?: number | undefined
  /** Nothing after this `seq` is settled. Left out: as before. */
  readonly upTo?: number | undefined
}

export interface FileFigures {
  /** The `seq` of the oldest pending message. */
  readonly oldest: number | undefined
  readonly deadLetters: number
}

/** What was deleted, and when dead letters among it were received, in milliseconds since the epoch. */
export interface Dropped {
  /** Dead letters. */
  readonly messages: number
  /** How many of them were too old. The others had to make room for new messages. */
  readonly expired: number
  /** Handled messages. */
  readonly settled: number
  readonly fromMs: number
  readonly toMs: number
}

export interface Tidied extends FileFigures {
  readonly more: boolean
  readonly hasRoom: boolean
  readonly dropped?: Dropped | undefined
}

export interface OpenedFile extends FileFigures {
  readonly lastId: string | undefined
  /** The time that an earlier process believed. */
  readonly believed: Believed | undefined
  readonly gaps: readonly InboxGap[]
  readonly owed: readonly OwedBranch[]
  readonly messages: number
  readonly bytes: number
  /** A process ended without `close` and left messages. Its last claims may be missing in the file. */
  readonly unclean: boolean
  /** For a receiver that keeps states of vehicles. */
  readonly vehicles?: OpenedVehicles | undefined
  readonly version: string
  /** The file was damaged and has been replaced. */
  readonly damage?: Damage | undefined
  /** Files that hold messages, and that no receiver has open. Looked for when a receiver starts. */
  readonly unopened: readonly UnopenedInbox[]
  /** Vehicles whose erasure an earlier process has begun. Pages may still have something of them. */
  readonly erasing: readonly string[]
}

/** What a file says about the states of vehicles in it. */
export interface OpenedVehicles {
  /** Everything settled up to this `seq` is in them. */
  readonly seq: number
  /** Nothing after this `seq` is settled. */
  readonly upTo: number
  /** A receiver that keeps no states has used the file since then, in milliseconds since the epoch. */
  readonly staleFromMs?: number | undefined
}

export interface Damage {
  /** The new name of the damaged file. */
  readonly quarantine: string
  /** What it held was received since then, in milliseconds since the epoch. */
  readonly fromMs: number
}

/** A part of a list, and the `seq` after which the next part begins: `undefined` for the last part. */
export interface Page<T> {
  readonly items: readonly T[]
  readonly next: number | undefined
}

/** A message as the file keeps it: its `seq` is the key, and the event is left out. */
export interface StoredMessage extends Omit<InboxMessage, 'event'> {
  readonly seq: number
  /** The `seq` of the first message of its `put`, of which all are kept or none. Default: it came alone. */
  readonly first?: number
}

/** A row that SQLite does not take. It is not written, and the others of its commit are. */
export interface Refused {
  readonly row: 'put' | 'update' | 'settle' | 'move' | 'vehicle'
  /** The `seq` of its message (for a `put` the first one), the number of the move in its transaction, or the VIN. */
  readonly key: number | string
  /** The message, where it is known. */
  readonly id?: string | undefined
  readonly reason: string
}

/** Claims and retries of a pending message since the last commit. */
export interface PendingUpdate {
  readonly seq: number
  /** The number with which the count of deliveries starts over, if it does. */
  readonly deliveriesFrom?: number
  readonly deliveries: number
  readonly attempts?: number
  readonly notBefore?: number
  /** The last failure of a handler. `null`: none any more. Left out: as before. */
  readonly failure?: LastFailure | null
}

/** A message changes its state, and the caller waits for the result. */
export type Move =
  | { readonly to: 'settled' | 'deleted' | 'pending'; readonly seq: number }
  | ({ readonly to: 'dead'; readonly seq: number } & DeadLetterReason)

/** What one commit writes, in this order. */
export interface Transaction {
  /** The `seq` of messages that a failed commit may have written although their put was refused. */
  readonly retracted: readonly number[]
  readonly puts: readonly StoredMessage[]
  readonly updates: readonly PendingUpdate[]
  readonly settled: readonly number[]
  readonly moves: readonly Move[]
  readonly vehicles?: VehicleWrites | undefined
  /** The time that deletes what is too old. */
  readonly nowMs: number
  /** The space of all pending messages, the puts of this transaction included. */
  readonly pendingBytes: number
}

export interface Committed extends FileFigures {
  /** Default: none. */
  readonly refused?: readonly Refused[]
  /** For each move the size of the moved message, or `undefined` when there was no such message. */
  readonly moved: readonly (number | undefined)[]
  readonly retracted: { readonly messages: number; readonly bytes: number }
  readonly hasRoom: boolean
  readonly dropped?: Dropped | undefined
}
