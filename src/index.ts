/**
 * The webhook receiver for shared-vehicle telemetry.
 *
 * @module
 */
export type { Clock } from './base/clock.ts'
export { type ErrorCode, FleethookError } from './base/errors.ts'
export type { Log } from './base/log.ts'
export type {
  BatchContext,
  BatchHandler,
  BatchOptions,
  EventOf,
  Handler,
  HandlerContext,
  HandlerFilter,
  Subject,
} from './core/handler.ts'
export { Discard, Retry } from './core/retry.ts'
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
export type { BuiltInFields, FieldCatalogue, FieldValues } from './events/fields.ts'
export type { MalformedBody } from './events/malformed.ts'
export { summarize } from './events/summarize.ts'
export type { Location } from './events/values.ts'
export type { Ack, DrainOptions, DrainResult, Durability } from './hosting/drainable.ts'
export type { Answer, Readiness } from './http/answers.ts'
export type { Secret } from './http/secret.ts'
export type { DeadLetters, DeadMessage, KeptMessages, Messages } from './observe/dead-letters.ts'
export { memoryInbox } from './inbox/memory.ts'
export type { Delivery, ErrorDetails, Observer, RefusedRequest } from './observe/observer.ts'
export type { Stats } from './observe/stats.ts'
export type { GivenMessage } from './http/routes.ts'
export type { Receiver } from './receiver/interface.ts'
export { dedupe } from './parts/dedupe.ts'
export { vehicles, type VehiclesOptions } from './parts/vehicles.ts'
export type { ReceiverOptions } from './receiver/options.ts'
export { createReceiver } from './receiver.ts'
export type { Vehicles } from './vehicles/vehicles.ts'
