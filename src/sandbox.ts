/**
 * A stand-in for the service, to develop and test against without a car.
 *
 * @module
 */
export { type CommandAccess, type SandboxOptions } from './service/sandbox/options.ts'
export { type OutgoingMessage, type PostMessage } from './service/sandbox/post.ts'
export { createSandbox, type Sandbox } from './service/sandbox/sandbox.ts'
export type { KeptFields, KeptVehicle, KeptWebhook, SandboxState, SandboxStore } from './service/sandbox/store.ts'
