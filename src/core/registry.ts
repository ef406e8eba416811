import { FleethookError } from '../base/errors.ts'
import { isObject } from '../base/options.ts'
import type { FleetEvent } from '../events/event.ts'
import { type FieldCatalogue, guessOf, isInCatalogue, type OtherField } from '../events/fields.ts'
import { type MalformedBody, vinOfEvent } from '../events/malformed.ts'
import { wireTopics } from '../wire/envelope.ts'
import { isTextList } from '../wire/record.ts'
import type { HandledSubjects } from '../inbox/inbox.ts'
import { markOf, nthRunOf } from '../inbox/once-handlers.ts'
import type { Message, Handler, Wants } from './message.ts'
import type { HandlerFilter } from './handler.ts'
import type { EdgeSubjects } from '../vehicles/vehicles.ts'

/** A filter as it was given, with unchecked names of fields. */
type GivenFilter = Omit<HandlerFilter, 'fields' | 'changed'> & {
  readonly fields?: readonly string[]
  readonly changed?: readonly string[]
}

/** Filters and subjects that a part brings: the newest state of vehicles knows what changed, and which edges happened. */
export interface Subjects {
  /** The key of a subject of this kind, and what its handlers get. `undefined`: it is no such subject. */
  subject(given: unknown): { readonly key: string; readonly input: (message: Message) => unknown } | undefined
  /** The handler for a subject that is there for the `nth` time in a message. It stays the same object: batches and breakers know it by that. */
  again(handler: Handler, nth: number): Handler
  /** The filter `changed`. Throws `handler_invalid` for a field that is not kept. */
  changed(filter: GivenFilter): (message: Message | undefined) => boolean
}

/** The handlers of a receiver, in the order in which they were registered. */
export interface Registry {
  /**
   * `handling` is a handler, or a filter and a handler. A handler without a name gets that of the line that called `method`: `on`,
   * `batch` or `when` of the receiver. Throws `handler_invalid` when an argument of it is wrong.
   */
  add(method: object, subjects: unknown, handling: readonly unknown[], gather?: Handler['gather']): void
  /** The handlers for a message of these subjects: handlers of one message first, batches last. */
  handlersFor(
    event: FleetEvent | MalformedBody,
    message: Message | undefined,
    edges: EdgeSubjects | undefined,
  ): readonly Handler[]
  /** What was registered, for inboxes that several processes share. */
  readonly added: readonly HandledSubjects[]
  /** The names of the handlers and batches that an event is for, without those of other subjects than its topic. */
  namesFor(event: FleetEvent | MalformedBody): readonly string[]
}

interface Subscribed {
  readonly handlers: readonly Handler[]
  readonly isFiltered: boolean
  /** A handler that leaves a mark is there twice. */
  readonly hasRepeated: boolean
}

const topics: readonly string[] = [...wireTopics, 'unknown', 'gap']
const subjects: readonly string[] = [...topics, '*', 'malformed']

const nobody: Subscribed = { handlers: [], isFiltered: false, hasRepeated: false }

/** An empty registry. A filter may name the fields of the built-in catalogue and those of `ownFields`. */
export function createRegistry(ownFields: FieldCatalogue = {}, more?: Subjects): Registry {
  const byKey = new Map<string, Subscribed>()
  const added: HandledSubjects[] = []
  /** Later runs of a handler for one message, by their number. */
  const runs = new Map<Handler, Handler[]>()

  /** The `nth` run of a handler that leaves a mark: each leaves one of its own. It stays the same object, like that of `again`. */
  function nthRun(handler: Handler, nth: number): Handler {
    const known = runs.get(handler) ?? []
    runs.set(handler, known)
    const { name, run, wants, input, gather } = handler
    const nthOf = nthRunOf(run, nth)
    return (known[nth - 1] ??= {
      name,
      wants,
      input,
      gather,
      run: isFunction(nthOf) ? nthOf : run,
      mark: markOf(run, nth),
    })
  }

  /** Handlers in their order. A handler that leaves a mark runs more than once when it is for several of the message's subjects. */
  function numbered(handlers: readonly Handler[]): readonly Handler[] {
    const counts = new Map<string, number>()
    return handlers.map((handler) => {
      const nth = counts.get(handler.mark ?? '') ?? 0
      if (handler.mark === undefined) return handler
      counts.set(handler.mark, nth + 1)
      return nth === 0 ? handler : nthRun(handler, nth)
    })
  }

  function subscribe(key: string, handler: Handler): void {
    const known = byKey.get(key) ?? nobody
    const handlers = [...known.handlers, handler]
    const inOrder = [
      ...handlers.filter(({ gather }) => gather === undefined),
      ...handlers.filter(({ gather }) => gather),
    ]
    const isRepeated = handler.mark !== undefined && known.handlers.some(({ mark }) => mark === handler.mark)
    byKey.set(key, {
      handlers: inOrder,
      isFiltered: known.isFiltered || handler.wants !== undefined,
      hasRepeated: known.hasRepeated || isRepeated,
    })
  }

  const registry: Registry = {
    add(method, given, handling, gather) {
      if (gather !== undefined) checkBatch(gather)
      const run = handling.at(-1)
      const [filter] = handling.length > 1 ? [checked(handling[0], ownFields)] : []
      const wants = filter && wantsIn(filter, filter.changed && changedIn(filter, more))
      const other = more?.subject(given)
      const keys = other === undefined ? topicsIn(given) : [other.key]
      if (!isFunction(run))
        throw invalid(
          `The handler for ${[...keys].join(', ')} is ${typeof run}, not a function.`,
          'A filter comes before the handler.',
        )
      const mark = markOf(run)
      const handler: Handler = { name: nameOf(run, method), run, wants, input: other?.input, gather, mark }
      for (const key of keys) subscribe(key, handler)
      added.push({ keys, filter, mark })
    },

    handlersFor(event, message, edges) {
      const ofTopic = byKey.get(event.topic) ?? nobody
      if (edges === undefined) {
        const handlers = matching(ofTopic, event, message)
        return ofTopic.hasRepeated ? numbered(handlers) : handlers
      }
      const { earlier, keys } = edges
      const order = [...earlier, event.topic, ...keys]
      const all = numbered(
        order.flatMap((key, at) => {
          const nth = order.slice(0, at).filter((other) => other === key).length
          const handlers = matching(byKey.get(key) ?? nobody, event, message)
          return nth === 0 || more === undefined ? handlers : handlers.map((handler) => more.again(handler, nth))
        }),
      )
      return [...all.filter(({ gather }) => gather === undefined), ...all.filter(({ gather }) => gather)]
    },

    added,

    namesFor: (event) => registry.handlersFor(event, undefined, undefined).map(({ name }) => name),
  }
  return registry
}

/** The handlers whose filters match. When a filter throws, the handler counts as wanted, and fails with that error when it runs. */
function matching(
  { handlers, isFiltered }: Subscribed,
  event: FleetEvent | MalformedBody,
  message: Message | undefined,
): readonly Handler[] {
  if (!isFiltered) return handlers
  return handlers.filter(({ wants }) => {
    try {
      return wants === undefined || wants(event, message)
    } catch {
      return true
    }
  })
}

const isFunction = (given: unknown): given is Handler['run'] => typeof given === 'function'

function nameOf(run: Handler['run'], method: object): string {
  const { name } = run
  if (/^[\w$ .:-]{1,100}$/.test(name)) return name
  const called: { stack?: unknown } = {}
  // Not in the standard, and in every runtime of ours.
  const capture: unknown = Reflect.get(Error, 'captureStackTrace')
  if (typeof capture === 'function') capture.call(Error, called, method)
  const place = /[^()\s@/\\]+:\d+(?=:\d+\)?$)/m.exec(String(called.stack))
  return place?.[0] ?? 'without a name'
}

function checkBatch({ size, withinMs }: NonNullable<Handler['gather']>): void {
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
): Wants {
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

function changedIn(filter: GivenFilter, more: Subjects | undefined): (message: Message | undefined) => boolean {
  if (more !== undefined) return more.changed(filter)
  throw invalid(
    'The filter `changed` needs the part `vehicles`, and the receiver has none.',
    `Give createReceiver the option parts: [vehicles({ fields: ['${filter.changed?.[0] ?? 'Gear'}'] })].`,
  )
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
  // Without this check, text in place of a list would be read letter by letter and match nothing.
  if (fields !== undefined && !isTextList(fields)) throw invalid('The filter `fields` must be a list of field names.')
  if (vins !== undefined && typeof vins !== 'function' && !isTextList(vins))
    throw invalid('The filter `vins` must be a list of VINs or a function of one VIN.')
  if (changed !== undefined && !isTextList(changed))
    throw invalid('The filter `changed` must be a list of field names.')
  for (const [name, value] of Object.entries({ first, invalid: isInvalidWanted })) {
    if (value === undefined || (typeof value === 'boolean' && changed !== undefined)) continue
    throw invalid(`The filter \`${name}\` must be true or false, and needs \`changed\`.`)
  }
  for (const field of fields ?? []) checkField('fields', field, ownFields)
  for (const field of changed ?? []) checkField('changed', field, ownFields)
  return filter
}

function checkField(filter: 'fields' | 'changed', field: string, ownFields: FieldCatalogue): void {
  if (isInCatalogue(field, ownFields)) return
  throw invalid(
    `The filter \`${filter}\` names \`${field}\`, which is not in the catalogue.`,
    `${guessOf(field, ownFields)}Add a field of your own to the option \`fields\`, for instance { ${field}: 'any' }.`,
  )
}
