/** When the 2xx is sent: on receipt, once the inbox has made the message durable, or once all its handlers are done. */
export type Ack = 'received' | 'stored' | 'handled'

/** What a stored message survives: nothing but the process, the machine's power, or the machine. */
export type Durability = 'memory' | 'disk' | 'replicated'

/** The result of a drain. Counts are of messages that came over the wire, from the call of `drain` on. */
export interface DrainResult {
  /** Handled, or made dead letters, before the deadline. */
  readonly handled: number
  /** Still waiting in a durable inbox: a later process handles them. */
  readonly left: number
  /** Gone with the process: not handled at the deadline, and the inbox was in memory. */
  readonly lost: number
}

/** What a server needs of a receiver: how to open and drain it, and what its 2xx promises. */
export interface Drainable {
  readonly open: () => Promise<void>
  readonly drain: (options?: { readonly deadlineMs?: number }) => Promise<DrainResult>
  readonly ack: Ack
  readonly durability: Durability
  /** The value of the option `inbox`. */
  readonly inbox: object
}
