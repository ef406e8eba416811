/**
 * A client of the service's own interface: the webhook, streaming configs, vehicles, energy sites, commands and streams.
 *
 * @module
 */
export { type Client, createClient } from './client/client.ts'
export type { CommandResult, VehicleCommand } from './client/command.ts'
export type {
  ConfigResource,
  ConfigResult,
  DefaultConfigResource,
  StoredConfig,
  StreamingConfig,
} from './client/config.ts'
export type { Document } from './client/document.ts'
export type { EnergyCommand, EnergySiteResource } from './client/energy-site.ts'
export type { FieldSetting, FieldSettingOf, FieldSettings } from './client/field-setting.ts'
export type { ClientOptions } from './client/options.ts'
export type { Product } from './client/product.ts'
export type { Refill, Refillable, RefillOptions } from './client/refill.ts'
export type { Fetch, Query } from './client/request.ts'
export { ServiceError, type ServiceErrorCode, type ServiceErrorDetails } from './client/service-error.ts'
export type { EventStream, StreamGap, StreamMessage, StreamOptions } from './client/stream.ts'
export type { ReadOptions, VehicleImage, VehicleResource } from './client/vehicle.ts'
export type { CallOptions, StoredWebhook, Webhook, WebhookResource } from './client/webhook.ts'
