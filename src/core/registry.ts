import { FleethookError } from '../base/errors.ts'
import { isObject } from '../base/options.ts'
import type { FleetEvent } from '../events/event.ts'
import { type FieldCatalogue, guessOf, isInCatalogue, type OtherField } from '../events/fields.ts'
import { type MalformedBody, vinOfEvent } from '../events/malformed.ts'
import { wireTopics } from '../wire/envelope.ts'
import { isTextList } from '../wire/record.ts'
import type { HandledSubjects } from '../inbox/inbox.ts'
import { markedOf } from '../once/handlers.ts'
import type { Registered, Message } from './message.ts'
import type { HandlerFilter } from './handler.ts'
import { ownRetry } from './retry.ts'
import type { EdgeSubjects } from '../vehicles/step.ts'

/** A filter as it was given, with unchecked names of fields. */
export type GivenFilter = Omit<HandlerFilter, 'fields' | 'changed'> & {
  readonly fields?: readonly string[]
  readonly changed?: readonly string[]
}

/** Filters and subjects that a part brings: the newest state of vehicles knows what changed, and which edges happened. */
export interface Subjects {
  /** The key of a subject of this kind, and what its handlers get. `undefined`: it is no such subject. */
  subject(given: unknown): { readonly key: string; readonly input: NonNullable<Registered['input']> } | undefined
  /** The filter `changed`. Throws `handler_invalid` for a field that is not kept. */
  changed(filter: GivenFilter): (message: Message | undefined) => boolean
  /** Throws `handler_invalid` for a first argument of `receiver.when` that is no edge. */
  checkEdge(given: unknown): void
}

interface Subscribed {
  readonly handlers: readonly Registered[]
  readonly isFiltered: boolean
  /** A handler that leaves a mark is there twice. */
  readonly hasRepeated: boolean
}

const topics: readonly string[] = [...wireTopics, 'unknown', 'gap']
const subjects: readonly string[] = [...topics, '*', 'malformed']

const nobody: Subscribed = { handlers: [], isFiltered: false, hasRepeated: false }

/** The handlers of a receiver, in the order in which they were registered. */
export class Registry {
  /** What was registered, for inboxes that several processes share. */
  readonly added: HandledSubjects[] = []
  /** Handlers that say themselves how long they are tried. */
  readonly ownRetries: Registered[] = []
  /** Handlers that leave marks. */
  readonly marking: Registered[] = []
  readonly #ownFields: FieldCatalogue
  readonly #more: Subjects | undefined
  readonly #branch: string | undefined
  readonly #byKey = new Map<string, Subscribed>()
  /** Later runs of a handler for one message. */
  readonly #runs = new Map<Registered, Map<string, Registered>>()

  /** A filter may name the fields of the built-in catalogue and of `ownFields`. */
  constructor(ownFields: FieldCatalogue, more: Subjects | undefined, branch?: string) {
    this.#ownFields = ownFields
    this.#more = more
    this.#branch = branch
  }

  /**
   * `handling` is a handler, or a filter and a handler. A handler without a name gets the name of the line that called `method`: `on`,
   * `batch` or `when` of the receiver. Throws `handler_invalid` when an argument of it is wrong.
   */
  add(method: object, given: unknown, handling: readonly unknown[], gather?: Registered['gather']): void {
    if (gather !== undefined) checkBatch(gather)
    const handle = handling.at(-1)
    const [filter] = handling.length > 1 ? [checked(handling[0], this.#ownFields)] : []
    const { changed } = filter ?? {}
    const wants = filter && wantsIn(filter, changed && this.vehicles('The filter `changed`', changed).changed(filter))
    const other = this.#more?.subject(given)
    const keys = other === undefined ? topicsIn(given) : [other.key]
    if (!isFunction(handle))
      throw invalid(
        `The handler for ${[...keys].join(', ')} is ${typeof handle}, not a function.`,
        'A filter comes before the handler.',
      )
    const known = markedOf(handle)
    const marked = this.#branch === undefined ? known : known?.onBranch(this.#branch)
    const run = isFunction(marked?.run) ? marked.run : handle
    const mark = marked?.mark
    const retry = ownRetry(run)
    const handler: Registered = {
      name: nameOf(run, method),
      run,
      wants,
      input: other?.input,
      retry,
      gather,
      mark,
      hasMark: marked?.hasMark,
    }
    if (mark !== undefined) this.marking.push(handler)
    for (const key of keys) this.#subscribe(key, handler)
    this.added.push({ keys, filter, mark })
    if (retry !== undefined) this.ownRetries.push(handler)
  }

  /** The part `vehicles`, which `what` needs for these fields. Throws `handler_invalid` when there is none. */
  vehicles(what: string, fields: readonly string[] = []): Subjects {
    if (this.#more !== undefined) return this.#more
    const who = this.#branch === undefined ? 'the receiver' : `the branch \`${this.#branch}\``
    throw invalid(
      `${what} needs the part \`vehicles\`, and ${who} has none.`,
      `Give ${who} the option parts: [vehicles({ fields: ['${[fields].flat().join("', '") || 'Gear'}'] })].`,
    )
  }

  /** The handlers for a message of these subjects: handlers of one message first, batches last. */
  handlersFor(
    event: FleetEvent | MalformedBody,
    message: Message | undefined,
    edges: EdgeSubjects | undefined,
  ): readonly Registered[] {
    const { handlers, isFiltered, hasRepeated } = this.#byKey.get(event.topic) ?? nobody
    if (edges === undefined && !hasRepeated) return isFiltered ? matching(handlers, event, message) : handlers
    const order = [...(edges?.earlier ?? []), event.topic, ...(edges?.keys ?? [])]
    const marks: string[] = []
    const all = order.flatMap((key, at) => {
      const nth = order.slice(0, at).filter((other) => other === key).length
      return matching(this.#byKey.get(key)?.handlers ?? [], event, message).map((handler) => {
        const marked = handler.mark === undefined ? 0 : marks.filter((mark) => mark === handler.mark).length
        if (handler.mark !== undefined) marks.push(handler.mark)
        return this.#runOf(handler, nth, marked)
      })
    })
    return inOrder(all)
  }

  #subscribe(key: string, handler: Registered): void {
    const { handlers, isFiltered, hasRepeated } = this.#byKey.get(key) ?? nobody
    const isRepeated = handler.mark !== undefined && handlers.some(({ mark }) => mark === handler.mark)
    this.#byKey.set(key, {
      handlers: inOrder([...handlers, handler]),
      isFiltered: isFiltered || handler.wants !== undefined,
      hasRepeated: hasRepeated || isRepeated,
    })
  }

  /**
   * A handler runs more than once for a message when its subject is there again, or when it is for several of its subjects. Then each run leaves a
   * mark of its own. A run stays the same object, because batches and breakers know it by that.
   */
  #runOf(handler: Registered, nth: number, marked: number): Registered {
    if (nth === 0 && marked === 0) return handler
    const { name, run, wants, input, retry, gather, mark, hasMark } = handler
    const known = this.#runs.get(handler) ?? new Map<string, Registered>()
    this.#runs.set(handler, known)
    const which = `${nth} ${marked}`
    let found = known.get(which)
    if (found === undefined) {
      const own = marked === 0 ? undefined : markedOf(run)?.nthRun(marked)
      const nthInput = input && ((message: Message) => input(message, nth))
      found = {
        name,
        run: isFunction(own?.run) ? own.run : run,
        wants,
        input: nthInput,
        retry,
        gather,
        mark: own?.mark ?? mark,
        hasMark,
      }
      known.set(which, found)
    }
    return found
  }
}

/** Batches come last. */
const inOrder = (handlers: readonly Registered[]): readonly Registered[] => [
  ...handlers.filter(({ gather }) => gather === undefined),
  ...handlers.filter(({ gather }) => gather),
]

/** The handlers whose filters match. When a filter throws, the handler counts as wanted, and fails with that error when it runs. */
function matching(
  handlers: readonly Registered[],
  event: FleetEvent | MalformedBody,
  message: Message | undefined,
): readonly Registered[] {
  return handlers.filter(({ wants }) => {
    try {
      return wants === undefined || wants(event, message)
    } catch {
      return true
    }
  })
}

const isFunction = (given: unknown): given is Registered['run'] => typeof given === 'function'

function nameOf(run: Registered['run'], method: object): string {
  const { name } = run
  if (/^[\w$ .:-]{1,100}$/.test(name)) return name
  const called: { stack?: unknown } = {}
  // Not in the standard, and in every runtime of ours.
  const capture: unknown = Reflect.get(Error, 'captureStackTrace')
  if (typeof capture === 'function') capture.call(Error, called, method)
  const place = /[^()\s@/\\]+:\d+(?=:\d+\)?$)/m.exec(String(called.stack))
  return place?.[0] ?? 'without a name'
}

function checkBatch({ size, withinMs }: NonNullable<Registered['gather']>): void {
  for (const [name, value, least] of [
    ['size', size, 1],
    ['withinMs', withinMs, 0],
  ] as const) {
    if (Number.isSafeInteger(value) && value >= least && value < 2 ** 31) continue
    throw invalid(`\`${name}\` of a batch must be a whole number from ${least} to 2147483647 and is ${value}.`)
  }
}

function topicsIn(given: unknown): ReadonlySet<string> {
  const wanted: readonly unknown[] = Array.isArray(given) ? given : [given]
  const hint = `The topics are ${subjects.join(', ')}.`
  if (wanted.length === 0) throw invalid('A handler was registered for no topic.', hint)
  return new Set(
    wanted.flatMap((subject) => {
      if (typeof subject === 'string' && subjects.includes(subject)) return subject === '*' ? topics : [subject]
      const what = typeof subject === 'string' ? `"${subject}"` : `of type ${typeof subject}`
      throw invalid(`There is no topic ${what}.`, hint)
    }),
  )
}

function invalid(message: string, hint?: string): FleethookError {
  return new FleethookError('handler_invalid', message, { hint })
}

function wantsIn(
  { fields, vins }: GivenFilter,
  changed: ((message: Message | undefined) => boolean) | undefined,
): NonNullable<Registered['wants']> {
  const listed = typeof vins === 'function' || vins === undefined ? undefined : new Set(vins)
  const wantsVin = typeof vins === 'function' ? vins : listed && ((vin: string) => listed.has(vin))
  return (event, message) => {
    if (wantsVin !== undefined) {
      const vin = vinOfEvent(event)
      if (vin === undefined || !wantsVin(vin)) return false
    }
    if (changed !== undefined && !changed(message)) return false
    if (fields === undefined) return true
    return event.topic === 'data' && fields.some((field) => event.data[field as OtherField] !== undefined)
  }
}

function checked(filter: unknown, ownFields: FieldCatalogue): GivenFilter {
  if (!isObject(filter))
    throw invalid(`The filter of a handler is ${typeof filter}, not an object. It comes before the handler.`)
  const given: Partial<Record<string, unknown>> = filter
  const { fields, vins, changed, first, invalid: isInvalidWanted, ...others } = given
  const [other] = Object.keys(others)
  if (other !== undefined) {
    throw invalid(
      `There is no filter \`${other}\`.`,
      'The filters of a handler are `fields`, `changed` (with `first` and `invalid`) and `vins`.',
    )
  }
  for (const [name, names] of Object.entries({ fields, changed })) {
    // Without this check, text in place of a list would be read letter by letter and match nothing.
    if (names !== undefined && !isTextList(names))
      throw invalid(`The filter \`${name}\` must be a list of field names.`)
    for (const field of names ?? []) {
      if (isInCatalogue(field, ownFields)) continue
      throw invalid(
        `The filter \`${name}\` names \`${field}\`, which is not in the catalogue.`,
        `${guessOf(field, ownFields)}Add a field of your own to the option \`fields\`, for instance { ${field}: 'any' }.`,
      )
    }
  }
  if (vins !== undefined && typeof vins !== 'function' && !isTextList(vins))
    throw invalid('The filter `vins` must be a list of VINs or a function of one VIN.')
  for (const [name, value] of Object.entries({ first, invalid: isInvalidWanted })) {
    if (value === undefined || (typeof value === 'boolean' && changed !== undefined)) continue
    throw invalid(`The filter \`${name}\` must be true or false, and needs \`changed\`.`)
  }
  return filter
}
