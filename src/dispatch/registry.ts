import { FleethookError } from '../base/errors.ts'
import type { FleetEvent } from '../events/event.ts'
import { type FieldCatalogue, guessOf, isInCatalogue, type OtherField } from '../events/fields.ts'
import { type MalformedBody, vinOfEvent } from '../events/malformed.ts'
import type { AnyVehicleView } from '../vehicles/edge.ts'
import type { Step } from '../vehicles/vehicles.ts'
import { wireTopics } from '../wire/envelope.ts'
import { isTextList } from '../wire/record.ts'
import type { Delivery } from '../inbox/observer.ts'
import type { BatchContext, BatchOptions, Happening, HandlerFilter } from './handler.ts'
import { type RunContext, stepOf } from './running.ts'

/** A handler of any topic. The registry has already decided which events it is for. */
export type AnyHandler = (event: FleetEvent | MalformedBody, context: RunContext<Delivery>) => unknown

/** The handler of a batch, with its limits and its filter. */
export interface Gatherer {
  readonly size: number
  readonly withinMs: number
  readonly handler: (events: readonly unknown[], context: AnyBatchContext) => unknown
  readonly wants: Wants | undefined
  /** The edge whose happenings it gathers. `undefined`: it gathers events. */
  readonly edge: string | undefined
}

interface AnyBatchContext extends Omit<BatchContext, 'vehicles'> {
  readonly vehicles: readonly (AnyVehicleView | undefined)[]
}

/** What happened, for the handlers of an edge. Throws the error of an edge that failed. */
export function happeningOf(
  edge: string,
  {
    event,
    delivery,
    step,
  }: { readonly event: FleetEvent | MalformedBody; readonly delivery: Delivery; readonly step: Step | undefined },
): Omit<Happening, 'vehicle'> & { readonly vehicle: AnyVehicleView } {
  const found = step?.happened.find((each) => each.edge === edge)
  if (found !== undefined && 'error' in found) throw found.error
  const vehicle = step?.view
  if (found === undefined || vehicle === undefined || event.topic === 'malformed')
    throw invalid(`The edge \`${edge}\` did not happen in this message.`)
  const { vin } = vehicle
  return { vin, change: found.change, vehicle, edge, id: `${vin}:${edge}:${delivery.id}`, event }
}

/** The names of handlers, or the places where they were registered. */
const labels = /* @__PURE__ */ new WeakMap<object, string>()

/**
 * The name of a handler, or of the handler of a batch, in the log: its own name, or the file and line where it was
 * registered.
 */
export function labelOf(handler: object): string {
  return labels.get(handler) ?? 'without a name'
}

/** A function that is registered twice keeps its first label. */
function label(handler: object, text: string): void {
  if (!labels.has(handler)) labels.set(handler, text)
}

/** The frames of a stack between `registeredAs` and the caller of `receiver.on`, `batch` or `when`. */
const ownFrames = 4

function registeredAs(handler: object): string {
  const name = 'name' in handler ? handler.name : undefined
  if (typeof name === 'string' && /^[\w$ ]{1,60}$/.test(name)) return name
  const places = (new Error().stack ?? '').split('\n').flatMap((frame) => /[^()\s@]+:\d+:\d+(?=\)?$)/.exec(frame) ?? [])
  return places[ownFrames] ?? 'without a name'
}

/**
 * Checks and labels a handler. Its type is right because a handler is only called with events of the topics that it was
 * registered for.
 */
function checkHandler<Handler extends object>(handler: unknown, subject: string): asserts handler is Handler {
  if (typeof handler !== 'function') throw invalid(`The handler for ${subject} is ${typeof handler}, not a function.`)
  label(handler, registeredAs(handler))
}

/** A filter as it was given, with unchecked names of fields. */
type GivenFilter = Omit<HandlerFilter, 'fields' | 'changed'> & {
  readonly fields?: readonly string[]
  readonly changed?: readonly string[]
}

type GivenBatchOptions = Pick<BatchOptions, 'size' | 'withinMs'> & GivenFilter

/** The handlers of a receiver, in the order in which they were registered. */
export interface Registry {
  /** Throws `handler_invalid` when an argument of `receiver.on` is wrong. */
  add(subjects: unknown, handler: unknown, filter: GivenFilter | undefined): void
  /** Throws `handler_invalid` when an argument of `receiver.batch` is wrong. */
  addBatch(subjects: unknown, options: GivenBatchOptions, handler: unknown): void
  /** As `add`, for an edge that was already checked. */
  addEdge(edge: string, handler: unknown, filter: GivenFilter | undefined): void
  /** As `addBatch`, for an edge that was already checked. */
  addEdgeBatch(edge: string, options: GivenBatchOptions, handler: unknown): void
  /** The handlers and batches that an event is for. `step` is what it changed. */
  handlersFor(event: FleetEvent | MalformedBody, step?: Step): Matching
  /** The labels of the handlers and batches that an event is for, without those of edges. */
  namesFor(event: FleetEvent | MalformedBody): readonly string[]
}

/** The handlers for an event, in order, and the batches that want it. */
interface Matching {
  readonly handlers: readonly AnyHandler[]
  readonly gatherers: readonly Gatherer[]
}

interface Registered {
  readonly handler: AnyHandler
  readonly wants: Wants | undefined
}

type Wants = (event: FleetEvent | MalformedBody, step: Step | undefined) => boolean

/** The handlers for one topic. */
interface Subscribed {
  readonly all: readonly Registered[]
  readonly gatherers: readonly Gatherer[]
  /** The same for every event of the topic, when nothing has a filter. */
  readonly unfiltered: Matching | undefined
}

const topics: readonly string[] = [...wireTopics, 'unknown', 'gap']
const subjects: readonly string[] = [...topics, '*', 'malformed']

const nobody: Subscribed = { all: [], gatherers: [], unfiltered: { handlers: [], gatherers: [] } }

/**
 * An empty registry. A filter may name the fields of the built-in catalogue and those of `ownFields`, and as `changed` those
 * for which `keepsField` returns true.
 */
export function createRegistry(ownFields: FieldCatalogue = {}, keepsField?: (field: string) => boolean): Registry {
  const byTopic = new Map<string, Subscribed>()
  const byEdge = new Map<string, Subscribed>()

  function wantsOf(filter: GivenFilter | undefined): Wants | undefined {
    return filter && wantsIn(checked(filter, ownFields, keepsField))
  }

  function gathererOf(
    { size, withinMs, ...filter }: GivenBatchOptions,
    handler: Gatherer['handler'],
    edge?: string,
  ): Gatherer {
    const gatherer: Gatherer = { size, withinMs, handler, wants: wantsOf(filter), edge }
    label(gatherer, labelOf(handler))
    return gatherer
  }

  const registry: Registry = {
    add(given, handler, filter) {
      const wants = wantsOf(filter)
      const wanted = subjectsIn(given)
      checkHandler<AnyHandler>(handler, wanted.join(', '))
      for (const topic of topicsOf(wanted)) subscribe(byTopic, topic, [{ handler, wants }], [])
    },

    addBatch(given, options, handler) {
      checkBatch(options)
      const wanted = subjectsIn(given)
      checkHandler<Gatherer['handler']>(handler, wanted.join(', '))
      // One gatherer for all topics of the batch: their events are gathered together.
      const gatherer = gathererOf(options, handler)
      for (const topic of topicsOf(wanted)) subscribe(byTopic, topic, [], [gatherer])
    },

    addEdge(edge, handler, filter) {
      checkHandler<(happening: unknown, context: RunContext<Delivery>) => unknown>(handler, edge)
      const wants = wantsOf(filter)
      const ofEdge: AnyHandler = (event, context) =>
        handler(happeningOf(edge, { event, delivery: context.delivery, step: stepOf(context) }), context)
      label(ofEdge, labelOf(handler))
      subscribe(byEdge, edge, [{ handler: ofEdge, wants }], [])
    },

    addEdgeBatch(edge, options, handler) {
      checkBatch(options)
      checkHandler<Gatherer['handler']>(handler, edge)
      subscribe(byEdge, edge, [], [gathererOf(options, handler, edge)])
    },

    handlersFor(event, step) {
      const topic = byTopic.get(event.topic) ?? nobody
      if (step === undefined || step.happened.length === 0) return topic.unfiltered ?? matching(topic, event, step)
      const subscriptions = [topic, ...step.happened.map(({ edge }) => byEdge.get(edge) ?? nobody)]
      const all = subscriptions.map((each) => each.unfiltered ?? matching(each, event, step))
      return { handlers: all.flatMap(({ handlers }) => handlers), gatherers: all.flatMap(({ gatherers }) => gatherers) }
    },

    namesFor(event) {
      const { handlers, gatherers } = registry.handlersFor(event)
      return [...handlers, ...gatherers].map(labelOf)
    },
  }
  return registry
}

/** Adds handlers and batches to those of a topic or an edge. */
function subscribe(
  to: Map<string, Subscribed>,
  key: string,
  more: readonly Registered[],
  moreGatherers: readonly Gatherer[],
): void {
  const known = to.get(key) ?? nobody
  const all = [...known.all, ...more]
  const gatherers = [...known.gatherers, ...moreGatherers]
  const isFiltered = [...all, ...gatherers].some(({ wants }) => wants !== undefined)
  const handlers = all.map(({ handler }) => handler)
  to.set(key, { all, gatherers, unfiltered: isFiltered ? undefined : { handlers, gatherers } })
}

/** The subscribed handlers and batches whose filters match an event. */
function matching({ all, gatherers }: Subscribed, event: FleetEvent | MalformedBody, step: Step | undefined): Matching {
  return {
    handlers: all.flatMap((registered) => wanting(registered, event, step)),
    gatherers: gatherers.filter(({ wants }) => wanted(wants, event, step)),
  }
}

function checkBatch({ size, withinMs }: GivenBatchOptions): void {
  for (const [name, value, least] of [
    ['size', size, 1],
    ['withinMs', withinMs, 0],
  ] as const) {
    if (Number.isSafeInteger(value) && value >= least && value < 2 ** 31) continue
    throw invalid(`\`${name}\` of a batch must be a whole number from ${least} to 2147483647 and is ${value}.`)
  }
}

/** When a filter of a batch throws, the event counts as wanted. The batch then runs the filter again and fails with its error. */
function wanted(wants: Wants | undefined, event: FleetEvent | MalformedBody, step: Step | undefined): boolean {
  try {
    return wants === undefined || wants(event, step)
  } catch {
    return true
  }
}

/** When the filter of a handler throws, the handler fails with that error and is retried. The other handlers run as usual. */
function wanting(
  { handler, wants }: Registered,
  event: FleetEvent | MalformedBody,
  step: Step | undefined,
): readonly AnyHandler[] {
  if (wants === undefined) return [handler]
  try {
    return wants(event, step) ? [handler] : []
  } catch {
    const filtered: AnyHandler = (again, context) =>
      wants(again, stepOf(context)) ? handler(again, context) : undefined
    label(filtered, labelOf(handler))
    return [filtered]
  }
}

function subjectsIn(given: unknown): readonly string[] {
  const wanted: readonly unknown[] = Array.isArray(given) ? given : [given]
  const hint = `The topics are ${subjects.join(', ')}.`
  if (wanted.length === 0) throw invalid('A handler was registered for no topic.', hint)
  return wanted.map((subject) => {
    if (typeof subject === 'string' && subjects.includes(subject)) return subject
    const what = typeof subject === 'string' ? `"${subject}"` : `of type ${typeof subject}`
    throw invalid(`There is no topic ${what}.`, hint)
  })
}

const topicsOf = (wanted: readonly string[]): ReadonlySet<string> =>
  new Set(wanted.flatMap((subject) => (subject === '*' ? topics : [subject])))

function invalid(message: string, hint?: string): FleethookError {
  return new FleethookError('handler_invalid', message, { hint })
}

/** The filter as one function. */
function wantsIn({ fields, vins, changed, first = false, invalid = false }: GivenFilter): Wants {
  const listed = typeof vins === 'function' || vins === undefined ? undefined : new Set(vins)
  const wantsVin = typeof vins === 'function' ? vins : listed && ((vin: string) => listed.has(vin))
  const changing = changed && new Set(changed)
  return (event, step) => {
    if (wantsVin !== undefined) {
      const vin = vinOfEvent(event)
      if (vin === undefined || !wantsVin(vin)) return false
    }
    if (
      changing !== undefined &&
      step?.all.some(
        (change) => changing.has(change.field) && (first || !change.first) && (invalid || !change.invalid),
      ) !== true
    )
      return false
    if (fields === undefined) return true
    return event.topic === 'data' && fields.some((field) => event.data[field as OtherField] !== undefined)
  }
}

function checked(
  filter: GivenFilter,
  ownFields: FieldCatalogue,
  keepsField: ((field: string) => boolean) | undefined,
): GivenFilter {
  const given: Partial<Record<string, unknown>> = { ...filter }
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
  for (const field of changed ?? []) {
    checkField('changed', field, ownFields)
    if (keepsField?.(field) === true) continue
    throw invalid(
      keepsField === undefined
        ? 'The filter `changed` needs the option `vehicles`, which is off.'
        : `The filter \`changed\` names \`${field}\`, which is not among the \`fields\` of the option \`vehicles\`.`,
      `Give createReceiver the option vehicles: { fields: ['${field}'] }.`,
    )
  }
  return filter
}

function checkField(filter: 'fields' | 'changed', field: string, ownFields: FieldCatalogue): void {
  if (isInCatalogue(field, ownFields)) return
  throw invalid(
    `The filter \`${filter}\` names \`${field}\`, which is not in the catalogue.`,
    `${guessOf(field, ownFields)}Add a field of your own to the option \`fields\`, for instance { ${field}: 'any' }.`,
  )
}
