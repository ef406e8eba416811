/**
 * A typed client of the service's own interface: the webhook, streaming configs, vehicles, energy sites, commands and streams.
 *
 * @module
 */
export { type Client, createClient } from './service/client/client.ts'
export type {
  ConfigChange,
  ConfigResource,
  ConfigResult,
  DefaultConfigResource,
  FieldSetting,
  FieldSettingOf,
  FieldSettings,
  StoredConfig,
  StreamingConfig,
} from './service/client/config.ts'
export type { CallOptions, ClientOptions, Fetch, Query, ReadOptions } from './service/client/connection.ts'
export type { Customer, CustomerOfVehicle, Customers } from './service/client/customers.ts'
export type { Hearing, MissingOptions, MissingVehicles } from './service/client/missing.ts'
export type { HeardVehicle, MissingReason, MissingReport, MissingVehicle, MissingWatch } from './observe/missing.ts'
export type {
  CommandResult,
  Document,
  EnergyCommand,
  EnergySiteResource,
  Product,
  VehicleCommand,
  VehicleImage,
  VehicleResource,
  VehicleSummary,
} from './service/client/products.ts'
export type { Refill, Refillable, RefillOptions } from './service/client/refill.ts'
export { ServiceError, type ServiceErrorCode, type ServiceErrorDetails } from './service/client/service-error.ts'
export type { EventStream, StreamGap, StreamMessage, StreamOptions } from './service/client/stream.ts'
export type { ConfigEvent, SiteEvent, SiteTopic, StreamEvent, StreamTopic } from './service/client/stream-events.ts'
export type { StoredWebhook, Webhook, WebhookResource } from './service/client/webhook.ts'
