/**
 * For tests of receivers, adapters and inboxes: messages, vehicles that send them, a fake clock, and the conformance
 * suites. Runs under any test runner, on every runtime.
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
export { relayConformance, type RelayUnderTest } from './testing/relay-conformance.ts'
export { vehiclesConformance } from './testing/vehicles-conformance.ts'
export { type HandledEvent, receiverConformance, type ReceiverUnderTest } from './testing/receiver-conformance.ts'
export { type TestVehicle, vehicle } from './testing/vehicle.ts'
