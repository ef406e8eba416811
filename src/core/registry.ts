import { FleethookError } from '../base/errors.ts'
import { isObject } from '../base/options.ts'
import type { FleetEvent } from '../events/event.ts'
import { type FieldCatalogue, guessOf, isInCatalogue, type OtherField } from '../events/fields.ts'
import { type MalformedBody, vinOfEvent } from '../events/malformed.ts'
import { wireTopics } from '../wire/envelope.ts'
import { isTextList } from '../wire/record.ts'
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
  subject(given: unknown): { readonly key: string; readonly input: (entry: Entry, nth: number) => unknown } | undefined
  /** The filter `changed`. Throws `handler_invalid` for a field that is not kept. */
  changed(filter: GivenFilter): (entry: Entry | undefined) => boolean
}

/** The handlers of a receiver, in the order in which they were registered. */
export interface Registry {
  /** `handling` is a handler, or a filter and a handler. Throws `handler_invalid` when an argument of `receiver.on`, `batch` or `when` is wrong. */
  add(subjects: unknown, handling: readonly unknown[], gather?: Step['gather']): void
  /** The steps for a message of these subjects: handlers of one message first, batches last. */
  stepsFor(event: Message, entry: Entry | undefined, edges: EdgeSubjects | undefined): readonly Step[]
  /**
   * What it has handlers for, in a form that is the same in every process with the same handlers: subjects, with the fields of their filters, and
   * the names of handlers that leave marks.
   */
  declared(): readonly string[]
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
  const declared = new Set<string>()
  /** What the steps of other subjects get, and the same steps for a subject or a mark that is there more than once. */
  const inputs = new Map<Step, (entry: Entry, nth: number) => unknown>()
  const repeated = new Map<Step, Map<string, Step>>()

  /**
   * The step for the subject that is there for the `nth` time, and the `nthRun` of its handler for one message: each run leaves a mark of its own,
   * the same after a crash. It stays the same object: batches and breakers know it by that.
   */
  function again(step: Step, nth: number, nthRun: number): Step {
    const given = inputs.get(step)
    const isFirst = nth === 0 || given === undefined
    if (isFirst && nthRun === 0) return step
    const known = repeated.get(step) ?? new Map<string, Step>()
    repeated.set(step, known)
    const key = `${nth} ${nthRun}`
    const found = known.get(key)
    if (found !== undefined) return found
    const { name, wants, gather } = step
    const run = nthRunOf(step.handler, nthRun)
    const made: Step = {
      name,
      handler: isHandler(run) ? run : step.handler,
      wants,
      input: isFirst ? step.input : (entry) => given(entry, nth),
      gather,
      mark: markOf(step.handler, nthRun),
    }
    known.set(key, made)
    return made
  }

  /** Steps in the order of their subjects, with how often the subject of each was there before. */
  function numbered(steps: readonly { readonly step: Step; readonly nth: number }[]): readonly Step[] {
    const runs = new Map<string, number>()
    return steps.map(({ step, nth }) => {
      const { mark } = step
      if (mark === undefined) return again(step, nth, 0)
      const nthRun = runs.get(mark) ?? 0
      runs.set(mark, nthRun + 1)
      return again(step, nth, nthRun)
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
    add(given, handling, gather) {
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
      const input = other && ((entry: Entry): unknown => other.input(entry, 0))
      const step: Step = { name: registeredAs(handler), handler, wants, input, gather, mark }
      if (other !== undefined) inputs.set(step, other.input)
      for (const key of keys) {
        subscribe(key, step)
        for (const one of declarations(key, filter)) declared.add(one)
      }
      if (mark !== undefined) declared.add(`handler ${mark}`)
    },

    stepsFor(event, entry, edges) {
      const ofTopic = byKey.get(event.topic) ?? nobody
      if (edges === undefined) {
        const steps = matching(ofTopic, event, entry)
        return ofTopic.hasRepeated ? numbered(steps.map((step) => ({ step, nth: 0 }))) : steps
      }
      const { earlier, keys } = edges
      const order = [...earlier, event.topic, ...keys]
      const all = numbered(
        order.flatMap((key, at) => {
          const nth = order.slice(0, at).filter((other) => other === key).length
          return matching(byKey.get(key) ?? nobody, event, entry).map((step) => ({ step, nth }))
        }),
      )
      return [...all.filter(({ gather }) => gather === undefined), ...all.filter(({ gather }) => gather)]
    },

    declared: () => [...declared].toSorted(),

    namesFor: (event) => registry.stepsFor(event, undefined, undefined).map(({ name }) => name),
  }
  return registry
}

function declarations(key: string, filter: GivenFilter | undefined): readonly string[] {
  const of = filter?.vins === undefined ? '' : ' of some vehicles'
  const named = [
    ...(filter?.fields ?? []).map((field) => `${key}: ${field}`),
    ...(filter?.changed ?? []).map((field) => `${key}: ${field} changed`),
  ]
  return (named.length === 0 ? [key] : named).map((one) => one + of)
}

/** Whether processes with these handlers do what a declared one does. A handler without a filter gets what one with a filter gets. */
export function coveredBy(declared: readonly string[], one: string): boolean {
  return declared.some((other) => one === other || one.startsWith(`${other}: `) || one === `${other} of some vehicles`)
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

/** The frames of a stack between `registeredAs` and the caller of `receiver.on`, `batch` or `when`. */
const ownFrames = 3

function registeredAs(handler: Step['handler']): string {
  const { name } = handler
  if (/^[\w$ .:-]{1,100}$/.test(name)) return name
  const places = (new Error().stack ?? '')
    .split('\n')
    .flatMap((frame) => /[^()\s@/\\]+:\d+(?=:\d+\)?$)/.exec(frame) ?? [])
  return places[ownFrames] ?? 'without a name'
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
