export { type FakeClock, fakeClock, turn } from '../../src/testing/fake-clock.ts'
