/**
 * The webhook receiver for shared-vehicle telemetry.
 *
 * @module
 */
export type { Clock, Timer } from './clock.ts'
export type { DrainResult } from './dispatch/drain.ts'
export type { Dedupe } from './dispatch/duplicates.ts'
export type {
  BatchContext,
  BatchHandler,
  BatchOptions,
  Delivery,
  EventOf,
  Handler,
  HandlerContext,
  HandlerFilter,
  Subject,
} from './dispatch/handler.ts'
export type { RetryOptions } from './dispatch/retry.ts'
export { Discard, Retry } from './dispatch/thrown.ts'
export { type ErrorCode, FleethookError } from './errors.ts'
export type {
  Alert,
  AlertsEvent,
  ConnectivityEvent,
  DataEvent,
  ErrorsEvent,
  EventBase,
  FleetEvent,
  Format,
  GapEvent,
  GapReason,
  Meta,
  StateEvent,
  Topic,
  UnknownEvent,
  UnknownReason,
  VehicleDataEvent,
  VehicleError,
  WireEvent,
  WireTopic,
} from './events/event.ts'
export type {
  BuiltInFields,
  EnumType,
  ExtendedBy,
  FieldCatalogue,
  FieldType,
  FieldValues,
  ValueOf,
} from './events/fields.ts'
export type { MalformedBody } from './events/malformed.ts'
export {
  alertsEvent,
  connectivityEvent,
  dataEvent,
  errorsEvent,
  fleetEvent,
  gapEvent,
  stateEvent,
  unknownEvent,
  vehicleDataEvent,
} from './events/schemas.ts'
export type { Doors, FieldValue, Json, Location, TimeOfDay, Tires } from './events/values.ts'
export {
  eventCollectorMessage,
  type SentMessage,
  serviceMessage,
  vehicleMakerMessage,
  wireMessage,
} from './events/wire-schemas.ts'
export type { Answer, RefusalError } from './http/answers.ts'
export type { ExecutionContext } from './http/execution-context.ts'
export type { Secret, SecretValue } from './http/secret.ts'
export type {
  Claim,
  DeadLetter,
  DeadLetterReason,
  Door,
  Durability,
  Inbox,
  InboxFactory,
  InboxMessage,
  InboxSettings,
  NextAttempt,
  Opened,
  Selection,
  Waiting,
} from './inbox/inbox.ts'
export { memoryInbox } from './inbox/memory.ts'
export type { RelayInbox } from './inbox/relay.ts'
export type { Log } from './log.ts'
export type { Ack, DeadMessage, Limits, ReceiverOptions } from './options.ts'
export type {
  DeadLetters,
  ErrorDetails,
  GivenMessage,
  MessageSelection,
  Receiver,
  ReplaySelection,
} from './receiver-interface.ts'
export { createReceiver } from './receiver.ts'
export type { Sink, Source } from './source.ts'
export type { Stats } from './stats.ts'
export type { Drift } from './wire/drift.ts'
