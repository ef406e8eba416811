/**
 * For those who extend fleethook: authors of inboxes, parts, observers and sources.
 *
 * @module
 */
export type { Timer } from './base/clock.ts'
export type { Ended, MessageView, Part, ReceiverPart } from './core/part.ts'
export type { ExecutionContext } from './hosting/execution-context.ts'
export type { DedupeOptions } from './parts/dedupe.ts'
export type { VehiclesPart } from './parts/vehicles.ts'
export type { Source } from './receiver/interface.ts'
export type { OpenOptions, RuntimeRefusal } from './hosting/drainable.ts'
export type { RefusalError } from './http/answers.ts'
export type { Door } from './http/paths.ts'
export type { MessageRecord, MessageSelection, ReplaySelection } from './observe/dead-letters.ts'
export type {
  Archive,
  Claim,
  DeadLetter,
  DeadLetterReason,
  Erased,
  Inbox,
  InboxEvent,
  InboxFactory,
  InboxGap,
  InboxHost,
  InboxMessage,
  KeptGap,
  ListedMessage,
  NextAttempt,
  Opened,
  Outcome,
  ReadersInMemory,
  ReaderHost,
  Selection,
  Settled,
  Waiting,
} from './inbox/inbox.ts'
export type { ObservedRun, OperatorApi, RunEnd, SettledMessage, TestMessage } from './observe/observer.ts'
export type { Histogram, InboxStats, UnopenedInbox } from './observe/stats.ts'
export type { StoredVehicle, VehicleStore } from './inbox/vehicle-store.ts'
export { Window, type WindowHost } from './inbox/window.ts'
