import { FleethookError } from '../base/errors.ts'
import { isObject } from '../base/options.ts'
import type { FleetEvent } from '../events/event.ts'
import { type FieldCatalogue, guessOf, isInCatalogue, type OtherField } from '../events/fields.ts'
import { type MalformedBody, vinOfEvent } from '../events/malformed.ts'
import { wireTopics } from '../wire/envelope.ts'
import { isTextList } from '../wire/record.ts'
import type { HandledSubjects } from '../inbox/inbox.ts'
import { markOf, nthRunOf } from '../inbox/once-handlers.ts'
import type { Entry, Step, Wants } from './entry.ts'
import type { HandlerFilter } from './handler.ts'
import type { EdgeSubjects } from '../vehicles/vehicles.ts'

type Message = FleetEvent | MalformedBody

/** A filter as it was given, with unchecked names of fields. */
type GivenFilter = Omit<HandlerFilter, 'fields' | 'changed'> & {
  readonly fields?: readonly string[]
  readonly changed?: readonly string[]
}

/** Filters and subjects that a part brings: the newest state of vehicles knows what changed, and which edges happened. */
export interface Subjects {
  /** The key of a subject of this kind, and what its handlers get. `undefined`: it is no such subject. */
  subject(given: unknown): { readonly key: string; readonly input: (entry: Entry) => unknown } | undefined
  /** The step for a subject that is there for the `nth` time in a message. It stays the same object: batches and breakers know it by that. */
  again(step: Step, nth: number): Step
  /** The filter `changed`. Throws `handler_invalid` for a field that is not kept. */
  changed(filter: GivenFilter): (entry: Entry | undefined) => boolean
}

/** The handlers of a receiver, in the order in which they were registered. */
export interface Registry {
  /**
   * `handling` is a handler, or a filter and a handler. A handler without a name gets that of the line that called `method`: `on`,
   * `batch` or `when` of the receiver. Throws `handler_invalid` when an argument of it is wrong.
   */
  add(method: object, subjects: unknown, handling: readonly unknown[], gather?: Step['gather']): void
  /** The steps for a message of these subjects: handlers of one message first, batches last. */
  stepsFor(event: Message, entry: Entry | undefined, edges: EdgeSubjects | undefined): readonly Step[]
  /** What was registered, for inboxes that several processes share. */
  readonly added: readonly HandledSubjects[]
  /** The names of the handlers and batches that an event is for, without those of other subjects than its topic. */
  namesFor(event: Message): readonly string[]
}

interface Subscribed {
  readonly steps: readonly Step[]
  readonly isFiltered: boolean
  /** A handler that leaves a mark is there twice. */
  readonly hasRepeated: boolean
}

const topics: readonly string[] = [...wireTopics, 'unknown', 'gap']
const subjects: readonly string[] = [...topics, '*', 'malformed']

const nobody: Subscribed = { steps: [], isFiltered: false, hasRepeated: false }

/** An empty registry. A filter may name the fields of the built-in catalogue and those of `ownFields`. */
export function createRegistry(ownFields: FieldCatalogue = {}, more?: Subjects): Registry {
  const byKey = new Map<string, Subscribed>()
  const added: HandledSubjects[] = []
  /** Later runs of a handler for one message, by their number. */
  const runs = new Map<Step, Step[]>()

  /** The `nth` run of a handler that leaves a mark: each leaves one of its own. It stays the same object, like that of `again`. */
  function nthRun(step: Step, nth: number): Step {
    const known = runs.get(step) ?? []
    runs.set(step, known)
    const { name, handler, wants, input, gather } = step
    const run = nthRunOf(handler, nth)
    return (known[nth - 1] ??= {
      name,
      wants,
      input,
      gather,
      handler: isHandler(run) ? run : handler,
      mark: markOf(handler, nth),
    })
  }

  /** Steps in their order. A handler that leaves a mark runs more than once when it is for several of the message's subjects. */
  function numbered(steps: readonly Step[]): readonly Step[] {
    const counts = new Map<string, number>()
    return steps.map((step) => {
      const nth = counts.get(step.mark ?? '') ?? 0
      if (step.mark === undefined) return step
      counts.set(step.mark, nth + 1)
      return nth === 0 ? step : nthRun(step, nth)
    })
  }

  function subscribe(key: string, step: Step): void {
    const known = byKey.get(key) ?? nobody
    const steps = [...known.steps, step]
    const inOrder = [...steps.filter(({ gather }) => gather === undefined), ...steps.filter(({ gather }) => gather)]
    const isRepeated = step.mark !== undefined && known.steps.some(({ mark }) => mark === step.mark)
    byKey.set(key, {
      steps: inOrder,
      isFiltered: known.isFiltered || step.wants !== undefined,
      hasRepeated: known.hasRepeated || isRepeated,
    })
  }

  const registry: Registry = {
    add(method, given, handling, gather) {
      if (gather !== undefined) checkBatch(gather)
      const handler = handling.at(-1)
      const [filter] = handling.length > 1 ? [checked(handling[0], ownFields)] : []
      const wants = filter && wantsIn(filter, filter.changed && changedIn(filter, more))
      const other = more?.subject(given)
      const keys = other === undefined ? topicsIn(given) : [other.key]
      if (!isHandler(handler))
        throw invalid(
          `The handler for ${[...keys].join(', ')} is ${typeof handler}, not a function.`,
          'A filter comes before the handler.',
        )
      const mark = markOf(handler)
      const step: Step = { name: nameOf(handler, method), handler, wants, input: other?.input, gather, mark }
      for (const key of keys) subscribe(key, step)
      added.push({ keys, filter, mark })
    },

    stepsFor(event, entry, edges) {
      const ofTopic = byKey.get(event.topic) ?? nobody
      if (edges === undefined) {
        const steps = matching(ofTopic, event, entry)
        return ofTopic.hasRepeated ? numbered(steps) : steps
      }
      const { earlier, keys } = edges
      const order = [...earlier, event.topic, ...keys]
      const all = numbered(
        order.flatMap((key, at) => {
          const nth = order.slice(0, at).filter((other) => other === key).length
          const steps = matching(byKey.get(key) ?? nobody, event, entry)
          return nth === 0 || more === undefined ? steps : steps.map((step) => more.again(step, nth))
        }),
      )
      return [...all.filter(({ gather }) => gather === undefined), ...all.filter(({ gather }) => gather)]
    },

    added,

    namesFor: (event) => registry.stepsFor(event, undefined, undefined).map(({ name }) => name),
  }
  return registry
}

/** The steps whose filters match. When a filter throws, the step counts as wanted, and fails with that error when it runs. */
function matching({ steps, isFiltered }: Subscribed, event: Message, entry: Entry | undefined): readonly Step[] {
  if (!isFiltered) return steps
  return steps.filter(({ wants }) => {
    try {
      return wants === undefined || wants(event, entry)
    } catch {
      return true
    }
  })
}

const isHandler = (given: unknown): given is Step['handler'] => typeof given === 'function'

function nameOf(handler: Step['handler'], method: object): string {
  const { name } = handler
  if (/^[\w$ .:-]{1,100}$/.test(name)) return name
  const called: { stack?: unknown } = {}
  // Not in the standard, and in every runtime of ours.
  const capture: unknown = Reflect.get(Error, 'captureStackTrace')
  if (typeof capture === 'function') capture.call(Error, called, method)
  const place = /[^()\s@/\\]+:\d+(?=:\d+\)?$)/m.exec(String(called.stack))
  return place?.[0] ?? 'without a name'
}

function checkBatch({ size, withinMs }: NonNullable<Step['gather']>): void {
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

function wantsIn({ fields, vins }: GivenFilter, changed: ((entry: Entry | undefined) => boolean) | undefined): Wants {
  const listed = typeof vins === 'function' || vins === undefined ? undefined : new Set(vins)
  const wantsVin = typeof vins === 'function' ? vins : listed && ((vin: string) => listed.has(vin))
  return (event, entry) => {
    if (wantsVin !== undefined) {
      const vin = vinOfEvent(event)
      if (vin === undefined || !wantsVin(vin)) return false
    }
    if (changed !== undefined && !changed(entry)) return false
    if (fields === undefined) return true
    return event.topic === 'data' && fields.some((field) => event.data[field as OtherField] !== undefined)
  }
}

function changedIn(filter: GivenFilter, more: Subjects | undefined): (entry: Entry | undefined) => boolean {
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
