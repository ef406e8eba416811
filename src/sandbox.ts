/**
 * A stand-in for the service, to develop and test against without a car.
 *
 * @module
 */
export { type CommandAccess, type SandboxOptions } from './sandbox/options.ts'
export { type OutgoingMessage, type PostMessage } from './sandbox/post.ts'
export { createSandbox, type Sandbox } from './sandbox/sandbox.ts'
export type { KeptFields, KeptVehicle, KeptWebhook, SandboxState, SandboxStore } from './sandbox/store.ts'
