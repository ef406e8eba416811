import { FleethookError } from '../base/errors.ts'
import type { Delivery } from '../observe/observer.ts'

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

/**
 * Makes a handler of one message whose writes happen once. Ask for this type where a test passes a function of its own:
 * `(name, handler) => async (what, context) => void (await handler(what, context, transaction))`.
 */
export type OnceHandler<Transaction> = <What, Context extends Single>(
  name: string,
  handler: Handled<What, Context, Transaction>,
) => (what: What, context: Context) => Promise<void>

/** Makes handlers whose writes happen once. */
export interface OnceHandlers<Transaction> {
  /** For `receiver.on` and `receiver.when`. The name belongs to the marks: it must stay the same, and be the only one. */
  <What, Context extends Single>(
    name: string,
    handler: Handled<What, Context, Transaction>,
  ): (what: What, context: Context) => Promise<void>
  /**
   * For `receiver.batch`. When some messages of a batch were handled before, `inbox.exactlyOnce` gives the handler the others, and
   * `createOnce` tries the batch message by message.
   */
  batch<What, Context extends Several>(
    name: string,
    handler: Handled<readonly What[], Context, Transaction>,
  ): (what: readonly What[], context: Context) => Promise<void>
}

/** Handlers that leave marks: by the function that the receiver gets. `onceHandlers` brings what they do: who has none does not bundle it. */
const all = new WeakMap<object, Marked>()

/** Whether the mark of this name is in the database: then the writes of that run are committed. Rejects when that cannot be known now. */
export type HasMark = (mark: string, delivery: Delivery) => Promise<boolean>

/** A handler that leaves marks. When one is in the database, the writes of that run are committed. */
export interface Marked {
  readonly run: (...given: never[]) => unknown
  readonly mark: string
  readonly hasMark: HasMark
  /** Its `nth` run for one message: an edge can happen twice before a message, and each time is handled. No name of a handler has a `~`. */
  nthRun(nth: number): Pick<Marked, 'run' | 'mark'>
  /**
   * With marks of its own on a branch, which has the messages of its receiver under the same ids: otherwise the run on one would count as that on the
   * other, which would write nothing. No name of a handler has an `@`.
   */
  onBranch(branch: string): Pick<Marked, 'run' | 'mark' | 'hasMark'>
}

export const markedOf = (handler: object): Marked | undefined => all.get(handler)

/** Logs, metrics and operators call a handler by the name of its function. */
function marked<Made extends (...given: never[]) => unknown>(
  name: string,
  hasMark: HasMark,
  withMark: (mark: string) => Made,
): Made {
  const run = withMark(name)
  all.set(run, {
    run,
    mark: name,
    hasMark,
    nthRun(nth) {
      const mark = `${name}~${nth + 1}`
      return { run: withMark(mark), mark }
    },
    onBranch(branch) {
      const onIt = (mark: string): string => `${mark}@${branch}`
      const hasOnIt: HasMark = (mark, delivery) => hasMark(onIt(mark), delivery)
      return { run: marked(name, hasOnIt, (mark) => withMark(onIt(mark))), mark: name, hasMark: hasOnIt }
    },
  })
  return Object.defineProperty(run, 'name', { value: name })
}

/** Names of handlers as they can be written into statements. */
const nameRule = /^[\w.: -]{1,100}$/

/** Makes handlers that `run` runs. `names`: the names in use. `of`: the function that the user calls. */
export function onceHandlers<Transaction>(
  of: string,
  names: Set<string>,
  /** `which`: the places of the deliveries that are handled. Left out: all. */
  run: (
    name: string,
    deliveries: readonly Delivery[],
    handle: (transaction: Transaction, which?: readonly number[]) => unknown,
  ) => Promise<void>,
  has: HasMark,
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
      const withMark = (mark: string) => (what: What, context: Context) =>
        run(mark, [context.delivery], (tx) => handler(what, context, tx))
      return marked(name, has, withMark)
    },
    {
      batch<What, Context extends Several>(name: string, handler: Handled<readonly What[], Context, Transaction>) {
        take(name)
        const withMark = (mark: string) => (what: readonly What[], context: Context) =>
          run(mark, context.deliveries, (tx, which) =>
            handler(which === undefined ? what : what.filter((_, at) => which.includes(at)), context, tx),
          )
        return marked(name, has, withMark)
      },
    },
  )
}
