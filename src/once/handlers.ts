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
   * For `receiver.batch`. Of a batch of which some messages were handled before, `inbox.exactlyOnce` gives the handler the others, and
   * `createOnce` tries it message by message.
   */
  batch<What, Context extends Several>(
    name: string,
    handler: Handled<readonly What[], Context, Transaction>,
  ): (what: readonly What[], context: Context) => Promise<void>
}

/** Handlers that leave marks: by the function that the receiver gets, the name of the mark, and the same handler with another mark. */
const marks = new WeakMap<object, Marked>()

/** Whether the mark of this name is in the database: then the writes of that run are committed. Rejects when that cannot be known now. */
export type HasMark = (mark: string, delivery: Delivery) => Promise<boolean>

interface Marked {
  readonly of: string
  readonly name: string
  readonly has: HasMark
  readonly withMark: (mark: string) => (...given: never[]) => unknown
}

/**
 * The mark of the `nth` run of a handler for one message: an edge can happen twice before a message, and each time is handled. When it is in the
 * database, the writes of that run are committed. No name of a handler has a `~`.
 */
export function markOf(handler: object, nth: number = 0): string | undefined {
  const name = marks.get(handler)?.name
  return name === undefined || nth === 0 ? name : `${name}~${nth + 1}`
}

/** For a handler that leaves marks: asks for one of them. */
export const hasMarkOf = (handler: object): HasMark | undefined => marks.get(handler)?.has

/** The handler that leaves the mark of its `nth` run for one message. */
export function nthRunOf(handler: object, nth: number): object {
  const mark = markOf(handler, nth)
  return nth === 0 || mark === undefined ? handler : (marks.get(handler)?.withMark(mark) ?? handler)
}

/**
 * The handler with marks of its own on a branch, which has the messages of its receiver under the same ids: the table of `createOnce` would take the
 * run on one for that on the other, and write nothing. No name of a handler has an `@`.
 */
export function onBranch(handler: object, branch: string): object {
  const known = marks.get(handler)
  if (known?.of !== 'createOnce') return handler
  const onIt = (mark: string): string => `${mark}@${branch}`
  const has: HasMark = (mark, delivery) => known.has(onIt(mark), delivery)
  return marked({ ...known, has, withMark: (mark) => known.withMark(onIt(mark)) })
}

/** Logs, metrics and operators call a handler by the name of its function. */
function marked<Made extends (...given: never[]) => unknown>(
  about: Omit<Marked, 'withMark'> & { readonly withMark: (mark: string) => Made },
): Made {
  const { name, withMark } = about
  const made = withMark(name)
  marks.set(made, about)
  return Object.defineProperty(made, 'name', { value: name })
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
      return marked({ of, name, has, withMark })
    },
    {
      batch<What, Context extends Several>(name: string, handler: Handled<readonly What[], Context, Transaction>) {
        take(name)
        const withMark = (mark: string) => (what: readonly What[], context: Context) =>
          run(mark, context.deliveries, (tx, which) =>
            handler(which === undefined ? what : what.filter((_, at) => which.includes(at)), context, tx),
          )
        return marked({ of, name, has, withMark })
      },
    },
  )
}
