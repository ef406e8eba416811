/**
 * A stand-in for the service, to develop and test without a vehicle.
 *
 * @module
 */
export type { Failure, FailureKind } from './service/sandbox/faults.ts'
export type {
  ActivityLine,
  CommandAccess,
  KeptFields,
  KeptSetting,
  KeptVehicle,
  KeptWebhook,
  OutgoingMessage,
  PostMessage,
  SandboxOptions,
  SandboxState,
  SandboxStore,
} from './service/sandbox/options.ts'
export { createSandbox, type Sandbox } from './service/sandbox/sandbox.ts'
export type { StreamFault } from './service/sandbox/sse.ts'
