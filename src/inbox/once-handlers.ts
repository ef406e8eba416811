import { FleethookError } from '../base/errors.ts'
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

/** The names of handlers that leave marks, by the function that the receiver gets. */
const marks = new WeakMap<object, string>()

/** The name of a handler that leaves a mark in the database of its writes: when it resolves, they are committed. */
export const markOf = (handler: object): string | undefined => marks.get(handler)

/** Logs, metrics and operators call a handler by the name of its function. */
function marked<Made extends (...given: never[]) => unknown>(name: string, made: Made): Made {
  marks.set(made, name)
  return Object.defineProperty(made, 'name', { value: name })
}

/** Names of handlers as they can be written into statements. */
const nameRule = /^[\w.: -]{1,100}$/

/** Makes handlers that `run` runs. `names`: those that are taken. `of`: the function that the user calls. */
export function onceHandlers<Transaction>(
  of: string,
  names: Set<string>,
  /** `which`: the places of the deliveries that are handled. Left out: all. */
  run: (
    name: string,
    deliveries: readonly Delivery[],
    handle: (transaction: Transaction, which?: readonly number[]) => unknown,
  ) => Promise<void>,
): OnceHandlers<Transaction> {
  function take(name: string): void {
    if (typeof name !== 'string' || !nameRule.test(name))
      throw new FleethookError(
        'handler_invalid',
        'The name of a handler must have 1 to 100 letters, digits, spaces and . : _ -',
      )
    if (names.has(name))
      throw new FleethookError('handler_invalid', `Two handlers of ${of} have the name ${name}.`, {
        hint: 'Give each its own: the name says which handlers of a message are done.',
      })
    names.add(name)
  }

  return Object.assign(
    <What, Context extends Single>(name: string, handler: Handled<What, Context, Transaction>) => {
      take(name)
      return marked(name, (what: What, context: Context) =>
        run(name, [context.delivery], (tx) => handler(what, context, tx)),
      )
    },
    {
      batch<What, Context extends Several>(name: string, handler: Handled<readonly What[], Context, Transaction>) {
        take(name)
        return marked(name, (what: readonly What[], context: Context) =>
          run(name, context.deliveries, (tx, which) =>
            handler(which === undefined ? what : what.filter((_, at) => which.includes(at)), context, tx),
          ),
        )
      },
    },
  )
}
