/**
 * The webhook receiver for shared-vehicle telemetry.
 *
 * @module
 */
export type {
  DeadLetters,
  DeadMessage,
  MessageRecord,
  Messages,
  MessageSelection,
  ReplaySelection,
} from './inbox/dead-letters.ts'
export type { Door } from './http/paths.ts'
export type { Ack, DrainOptions, DrainResult, Durability, OpenOptions, RuntimeRefusal } from './hosting/drainable.ts'
export type { Clock, Timer } from './base/clock.ts'
export type {
  BatchContext,
  BatchHandler,
  BatchOptions,
  EdgeBatchHandler,
  EdgeHandler,
  EventOf,
  Handler,
  HandlerContext,
  HandlerFilter,
  Happening,
  Subject,
} from './dispatch/handler.ts'
export { Discard, Retry } from './dispatch/retry.ts'
export { type ErrorCode, FleethookError } from './base/errors.ts'
export type {
  Alert,
  AlertsEvent,
  ConnectivityEvent,
  DataEvent,
  ErrorsEvent,
  FleetEvent,
  Format,
  GapEvent,
  GapReason,
  Meta,
  StateEvent,
  Topic,
  UnknownEvent,
  VehicleDataEvent,
  VehicleError,
  WireEvent,
} from './events/event.ts'
export type {
  BuiltInFields,
  ExtendedBy,
  FieldCatalogue,
  FieldName,
  FieldType,
  FieldValues,
  OtherField,
} from './events/fields.ts'
export type { MalformedBody } from './events/malformed.ts'
export { summarize } from './events/summarize.ts'
export type { Doors, FieldValue, Json, Location, TimeOfDay, Tires } from './events/values.ts'
export type { Answer, Readiness, RefusalError } from './http/answers.ts'
export type { ExecutionContext } from './hosting/execution-context.ts'
export type { Secret } from './http/secret.ts'
export type {
  Claim,
  DeadLetter,
  DeadLetterReason,
  Inbox,
  InboxFactory,
  InboxGap,
  InboxMessage,
  InboxSettings,
  KeptGap,
  ListedMessage,
  Listing,
  NextAttempt,
  Opened,
  RelayInbox,
  Selection,
  Waiting,
} from './inbox/inbox.ts'
export type {
  Delivery,
  ErrorDetails,
  ObservedRun,
  Observer,
  OperatorApi,
  RefusedHandler,
  RefusedRequest,
  RunEnd,
  SettledMessage,
  TestMessage,
} from './inbox/observer.ts'
export { memoryInbox } from './inbox/memory.ts'
export type { Log } from './base/log.ts'
export type { ReceiverOptions, VehiclesOptions } from './receiver/options.ts'
export type { GivenMessage, Receiver } from './receiver/interface.ts'
export { createReceiver } from './receiver.ts'
export type { Source } from './receiver/source.ts'
export type { Histogram, InboxStats, Stats, UnopenedInbox } from './inbox/stats.ts'
export type { StoredVehicle, VehicleStore } from './inbox/vehicle-store.ts'
export type {
  AlertOccurrence,
  Bounds,
  Change,
  Condition,
  Edge,
  EdgeMemory,
  EdgeResult,
  EdgeStep,
  EdgeTopic,
  Occurrence,
  VehicleView,
} from './vehicles/edge.ts'
export type { Vehicles, VehiclesStats } from './vehicles/vehicles.ts'
