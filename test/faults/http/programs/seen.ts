/** The secret of the receiver that is attacked. */
export const secret = 'a-secret-of-the-faults'

/** What the receiver tells of itself, since it told the last time. */
export interface Seen {
  /** The number that each message brought, in the order in which they were handled. */
  readonly handled: readonly number[]
  /** The most memory that its process had at any time, in bytes. */
  readonly peakBytes: number
  /** Of all times. */
  readonly lost: number
}
