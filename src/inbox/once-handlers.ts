import type { Delivery } from './observer.ts'

/** The context of a handler of one message. */
export interface Single {
  readonly delivery: Delivery
}

/** The context of a handler of a batch. */
export interface Several {
  readonly deliveries: readonly Delivery[]
}

/** A handler that also gets the transaction. */
export type Handled<What, Context, Transaction> = (what: What, context: Context, transaction: Transaction) => unknown

/** Makes handlers whose writes happen once. */
export interface OnceHandlers<Transaction> {
  /** For `receiver.on` and `receiver.when`. The name belongs to the marks: it must stay the same, and be the only one. */
  <What, Context extends Single>(
    name: string,
    handler: Handled<What, Context, Transaction>,
  ): (what: What, context: Context) => Promise<void>
  /**
   * For `receiver.batch`. Of a batch of which some messages were handled before, `inbox.exactlyOnce` gives the handler the others, and
   * `createOnce` tries it message by message.
   */
  batch<What, Context extends Several>(
    name: string,
    handler: Handled<readonly What[], Context, Transaction>,
  ): (what: readonly What[], context: Context) => Promise<void>
}
