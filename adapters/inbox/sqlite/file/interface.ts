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
  Selection,
  Waiting,
} from '../../../../src/inbox/inbox.ts'
import type { Forgotten } from '../../../../src/observe/dead-letters.ts'
import type { LastFailure, UnopenedInbox } from '../../../../src/observe/stats.ts'
import type { Due, StoredVehicle } from '../../../../src/inbox/vehicle-store.ts'

/** All that touches the disk. It may run in a thread, so what it takes and returns is plain data. `reader`: the name of a branch. Left out: the receiver. */
export interface InboxFile {
  open(sign: SignOfLife, options?: OpenOptions): Promise<OpenedFile>
  /** Adds a branch to an open file. It begins with the next message. */
  addReader(sign: ReaderSign, nowMs: number): Promise<OpenedReader>
  /** Messages that wait, in order, from the first one after this `seq`. */
  waiting(after: number, reader?: string): Promise<Page<Waiting>>
  /** Writes all of the transaction and syncs it to the disk, or writes nothing. */
  commit(transaction: Transaction): Promise<Committed>
  /** A pending message. */
  find(seq: number, reader?: string): Promise<Claim | undefined>
  /** A message, whether pending, dead or settled. */
  message(seq: number, reader?: string): Promise<InboxMessage | undefined>
  deadLetters(which: Selection, after: number, reader?: string): Promise<Page<DeadLetter>>
  settled(which: Selection, after: number, reader?: string): Promise<Page<InboxMessage>>
  /** Messages of every state, newest first, from the one before this `seq`. */
  messages(which: Selection, before: number, reader?: string): Promise<Page<ListedMessage>>
  /** Rejects when the file or its journal was deleted, renamed or replaced. Else adds a piece to the reserve. */
  check(): Promise<void>
  /** Writes the sign of life, then does one bounded step of retention and of shrinking the file. */
  tidy(sign: SignOfLife, pendingBytes: number): Promise<Tidied>
  /** Drops what is kept for replays as far as needed. Resolves to whether the disk and the budget have room again. */
  probe(): Promise<boolean>
  /** Messages that are settled or given up, and that the stored states may lack. */
  unapplied(after: number, reader?: string): Promise<Page<InboxMessage>>
  vehicle(vin: string, reader?: string): Promise<VehicleRow | undefined>
  /** In the order of VINs. Fewer than `limit` when they are large, and none after the last one. */
  vehicles(after: string, limit: number, reader?: string): Promise<readonly VehicleRow[]>
  /** The first timers of vehicles in the order of VINs, in pages. */
  dueVehicles(after: string, reader?: string): Promise<readonly Due[]>
  /** States with other rules than these, in the order of VINs, in pages. */
  outdatedVehicles(rules: string, after: string, reader?: string): Promise<readonly VehicleRow[]>
  countVehicles(reader?: string): Promise<number>
  /** Deletes some states of vehicles that were not seen since `ms`. Resolves to their number; 0 when none is left. */
  removeUnseen(ms: number, reader?: string): Promise<number>
  /** Deletes the messages of a vehicle in the next part of the file, after this `seq`. `dryRun`: only counts them. */
  forget(vin: string, after: number, dryRun: boolean): Promise<ForgottenPage>
  /** Deletes the rest about it, and does a part of what leaves no byte of it in the file and its journal. Resolves to whether there is more to do. */
  scrub(vin: string): Promise<boolean>
  /** The files beside this file that an erasure does not reach. */
  notReached(): Promise<readonly string[]>
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
  /** The gaps that no stored event reports. Left out: the gaps in the file stay. */
  readonly gaps?: readonly KeptGap[] | undefined
  /** Whether the receiver keeps states of vehicles. Used at `open`. */
  readonly keepsVehicles?: boolean | undefined
  /** The branches that read this file. Default: none. */
  readonly readers?: readonly ReaderSign[] | undefined
}

/** The same of a branch. */
export interface ReaderSign {
  readonly reader: string
  readonly gaps?: readonly KeptGap[] | undefined
  readonly keepsVehicles?: boolean | undefined
}

/** Places of a reader that were erased. */
export interface ForgottenPlaces extends FileFigures {
  readonly reader: string
  readonly pending: Removed
  /** How many messages from the wire waited. */
  readonly waiting: number
}

export interface ForgottenPage extends Forgotten {
  /** What each reader had of it. The receiver comes first. */
  readonly readers: readonly ForgottenPlaces[]
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

/** A message that waited for a reader, and had to make room. */
export interface ExpiredPlace {
  readonly seq: number
  readonly id: string
  readonly bytes: number
  readonly isOfWire: boolean
}

/** What was deleted of a reader, and when dead letters and places among it were received, in milliseconds since the epoch. */
export interface Dropped {
  readonly places?: readonly ExpiredPlace[] | undefined

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
  readonly readers?: readonly (FileFigures & { readonly reader: string; readonly dropped?: Dropped | undefined })[]
}

/** What a file has of a reader that is opened. */
export interface OpenedReader extends FileFigures {
  readonly reader: string
  /** The file did not have it. */
  readonly isNew?: boolean | undefined
  readonly gaps: readonly InboxGap[]
  readonly messages: number
  readonly bytes: number
  readonly vehicles?: OpenedVehicles | undefined
}

/** A reader that no process has any more, and what waits for it. */
export interface LeftReader {
  readonly reader: string
  readonly messages: number
  readonly deadLetters: number
  /** Nobody had it for as long as dead letters are kept, so it is gone now. */
  readonly isDropped: boolean
}

export interface OpenedFile extends FileFigures {
  readonly lastId: string | undefined
  /** The time that an earlier process believed. */
  readonly believed: Believed | undefined
  readonly gaps: readonly InboxGap[]
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
  /** The branches that are to be opened with it. */
  readonly readers: readonly OpenedReader[]
  readonly left: readonly LeftReader[]
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
  /** The reader that it is only for. Left out: it is for the receiver, and may be for others. */
  readonly own?: string
  /** The other readers that get a place for it. Default: none. */
  readonly readers?: readonly string[]
}

/** A row that SQLite does not take. It is not written, and the others of its commit are. */
export interface Refused {
  /** Whose row it is. Empty: the receiver's. */
  readonly reader: string
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

/** What a reader changes. */
export interface ReaderChanges {
  /** Its name. Empty: the receiver. */
  readonly reader: string
  readonly updates: readonly PendingUpdate[]
  readonly settled: readonly number[]
  readonly moves: readonly Move[]
  readonly vehicles?: VehicleWrites | undefined
}

/** What one commit writes, in this order. The changes are the receiver's. */
export interface Transaction extends Omit<ReaderChanges, 'reader'> {
  /** The `seq` of messages that a failed commit may have written although their put was refused. */
  readonly retracted: readonly number[]
  readonly puts: readonly StoredMessage[]
  /** The changes of its branches. Default: none. */
  readonly readers?: readonly ReaderChanges[]
  /** The time that deletes what is too old. */
  readonly nowMs: number
  /** The space of all pending messages, the puts of this transaction included. */
  readonly pendingBytes: number
}

export interface Removed {
  readonly messages: number
  readonly bytes: number
}

/** What became of the changes of a reader. */
export interface WrittenChanges {
  /** For each move the size of the moved message, or `undefined` when there was no such message. */
  readonly moved: readonly (number | undefined)[]
  readonly retracted: Removed
}

/** The same with what a reader has after it. */
export interface ReaderCommitted extends WrittenChanges, FileFigures {
  readonly reader: string
  readonly dropped?: Dropped | undefined
}

/** What a commit has written, for the receiver. */
export interface Committed extends WrittenChanges, FileFigures {
  /** Default: none. */
  readonly refused?: readonly Refused[]
  readonly hasRoom: boolean
  readonly dropped?: Dropped | undefined
  /** The same of its branches. Default: none. */
  readonly readers?: readonly ReaderCommitted[]
}
