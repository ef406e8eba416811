/** The secret of the receiver that is attacked. */
export const secret = 'a-secret-of-the-faults'

/** What the receiver reports about itself since its last report. */
export interface Seen {
  /** The number that each message brought, in the order in which they were handled. */
  readonly handled: readonly number[]
  /** The most memory that its process had at any time, in bytes. */
  readonly peakBytes: number
  /** Of all times. */
  readonly lost: number
}
