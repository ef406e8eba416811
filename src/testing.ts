/**
 * For tests of receivers and inboxes: messages, vehicles that send them, a fake clock, and the conformance suites for inboxes. Runs
 * under any test runner, on every runtime.
 *
 * @module
 */
export { deliver, type Deliverable, type Delivered, type DeliverOptions } from './testing/deliver.ts'
export { type FakeClock, fakeClock } from './testing/fake-clock.ts'
export type { Conformance } from './testing/expectations.ts'
export { inboxConformance, type InboxUnderTest } from './testing/inbox-conformance.ts'
export {
  type GivenAlert,
  type GivenError,
  message,
  type MessageDetails,
  type MessageFactories,
  type MessageOf,
} from './testing/message.ts'
export { type TestVehicle, vehicle, type VehicleOptions } from './testing/vehicle.ts'
