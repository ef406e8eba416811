import type { Clock } from '../base/clock.ts'
import type { Due } from '../inbox/vehicle-store.ts'

/** Makes the clockwork of a receiver with timers. It is passed as a value, so that only such a receiver bundles it. */
export type Timing = (host: TimingHost) => Clockwork

/** What a {@link Clockwork} needs of its receiver. */
export interface TimingHost {
  readonly clock: Clock
  /** When the newest message was received, in milliseconds since the epoch. */
  readonly newestMs: () => number
  /** Puts a message into the lane of each of these vehicles. Resolves to whether the inbox took them. */
  readonly put: (due: readonly Due[]) => Promise<boolean>
}

/**
 * Where messages wait for a process that does not run. `own`: at its port. `elsewhere`: at other processes, which wake it for its timers, and it waits
 * only where that came late. `none`: others have taken them.
 */
export type Port = 'own' | 'elsewhere' | 'none'

/** Knows when the next timer of each vehicle is due. */
export interface Clockwork {
  /**
   * The next timer of a vehicle. `undefined`: there is none. `isAwake`: the message of the timer that was due is handed out. `isFollowed`: a newer
   * message waits in the lane of the vehicle, and tells what is due before it. So a backlog does not grow by a message for each timer in it.
   */
  set(vin: string, dueMs: number | undefined, isAwake?: boolean, isFollowed?: boolean): void
  /** A vehicle has a timer at this time, and may have earlier ones. */
  add(vin: string, dueMs: number): void
  /** The time by a clock that nobody sets. A message that came while the other one was set forward has a later time. */
  nowMs(): number
  /** The vehicles with a timer. */
  readonly known: ReadonlyMap<string, unknown>
  /** A message says that it was sent at this time. */
  heard(atMs: number): void
  /** When the next timer is due, by the time of day. `undefined`: there is none. */
  nextMs(): number | undefined
  /** Nobody ran until now: what is due waits until the messages at the port are here. */
  start(port?: Port): void
  /** The process stood still until now. */
  stoodStill(): void
  stop(): void
}
