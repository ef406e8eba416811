/**
 * A stand-in for the service, to develop and test without a car.
 *
 * @module
 */
export type {
  CommandAccess,
  KeptFields,
  KeptVehicle,
  KeptWebhook,
  OutgoingMessage,
  PostMessage,
  SandboxOptions,
  SandboxState,
  SandboxStore,
} from './service/sandbox/options.ts'
export { createSandbox, type Sandbox } from './service/sandbox/sandbox.ts'
