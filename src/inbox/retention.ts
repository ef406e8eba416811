/** How long messages that are no longer pending are kept, and how many bytes of them. The oldest are dropped first. */
export interface Retention {
  /** In milliseconds. Settled messages count from their receipt, dead letters from the time they were given up. */
  readonly forMs?: number
  /** The size of all of them together, in bytes. */
  readonly maxBytes?: number
}
