/**
 * A stand-in for the service, to develop and test without a vehicle.
 *
 * @module
 */
export type { ActivityLine, OutgoingMessage, PostMessage, SandboxOptions } from './service/sandbox/options.ts'
export { createSandbox, type Sandbox } from './service/sandbox/sandbox.ts'
