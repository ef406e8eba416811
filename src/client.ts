/**
 * A client of the service's own interface: the webhook, streaming configs, vehicles, energy sites, commands and streams.
 *
 * @module
 */
export { type Client, createClient } from './service/client/client.ts'
export type { CommandResult, VehicleCommand } from './service/client/command.ts'
export type {
  ConfigResource,
  ConfigResult,
  DefaultConfigResource,
  StoredConfig,
  StreamingConfig,
} from './service/client/config.ts'
export type { Document } from './service/client/document.ts'
export type { EnergyCommand, EnergySiteResource } from './service/client/energy-site.ts'
export type { FieldSetting, FieldSettingOf, FieldSettings } from './service/client/field-setting.ts'
export type { ClientOptions } from './service/client/options.ts'
export type { Product } from './service/client/product.ts'
export type { Refill, Refillable, RefillOptions } from './service/client/refill.ts'
export type { Fetch, Query } from './service/client/request.ts'
export { ServiceError, type ServiceErrorCode, type ServiceErrorDetails } from './service/client/service-error.ts'
export type { EventStream, StreamGap, StreamMessage, StreamOptions } from './service/client/stream.ts'
export type { ReadOptions, VehicleImage, VehicleResource } from './service/client/vehicle.ts'
export type { CallOptions, StoredWebhook, Webhook, WebhookResource } from './service/client/webhook.ts'
