import type { Clock } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import type { Log } from '../base/log.ts'
import { checkOptions, isObject, required, type Rules, wholeNumber } from '../base/options.ts'
import type { FactsEvent } from '../events/event.ts'
import { builtInFields, type FieldCatalogue, type FieldName, nearestName } from '../events/fields.ts'
import { checkLimits } from '../events/laws.ts'
import type { MissingField } from '../observe/stats.ts'
import type { DriftReport } from '../wire/drift.ts'
import type { Message } from '../core/message.ts'
import type { Happening } from '../core/handler.ts'
import type { GivenFilter, Subjects } from '../core/registry.ts'
import type { DeliveryIds } from '../inbox/delivery-id.ts'
import type { Inbox } from '../inbox/inbox.ts'
import { firstPage, pagesOf } from '../base/pages.ts'
import type { SentVehicle, VehiclesElsewhere, VehicleStore } from '../inbox/vehicle-store.ts'
import { type AnyVehicleView, type Change, isEdge } from '../vehicles/edge.ts'
import { EdgeIndex } from '../vehicles/edge-index.ts'
import { memoryVehicles } from '../vehicles/recent.ts'
import { factsOf, Slots, Snapshot, VehicleState } from '../vehicles/state.ts'
import { checkEdge } from '../vehicles/edge-checks.ts'
import { type Fact, isFact } from '../vehicles/fact.ts'
import { type FactsOfVehicle, VehicleStates } from '../vehicles/open.ts'
import { subjectOf } from '../vehicles/step.ts'
import type { ReadVehicles, Vehicles } from '../vehicles/vehicles.ts'
import { isTextList } from '../wire/record.ts'
import { Saying } from './saying.ts'

const none: readonly never[] = []

/** What {@link vehicles} takes. */
export interface VehiclesOptions<Field extends string = string, Of extends readonly Fact[] = readonly Fact[]> {
  /** The fields to keep. Positions are personal data, so keep `Location` only if you need it. `'all'`: all fields. */
  readonly fields: readonly Field[] | 'all'
  /**
   * The least difference from the last value that counted, for a new number to count as a change. Default: any difference. It
   * hides the noise of a sensor, but not a slow drift.
   */
  readonly deltas?: { readonly [Name in Field]?: number }
  /** Forgets a vehicle when no message of it has come for this time, in milliseconds. At least a minute. Default: never. */
  readonly forgetAfterMs?: number
  /**
   * What the business knows of a vehicle, and sets with `receiver.vehicles.set`: its customer, limits, areas, bookings. Make them with `fact` of
   * `fleethook/when`. Default: none.
   */
  readonly facts?: Of
}

const rules: Rules<VehiclesOptions> = {
  fields: /* @__PURE__ */ required(
    {
      must: "must be a list of field names, or 'all'",
      accepts: (value) => value === 'all' || (isTextList(value) && value.length > 0),
    },
    "Name the fields to keep, for instance vehicles({ fields: ['BatteryLevel', 'Gear'] }).",
  ),
  deltas: {
    must: 'must map field names to numbers above 0',
    accepts: (value) =>
      isObject(value) &&
      Object.values(value).every((delta) => typeof delta === 'number' && delta > 0 && delta < Infinity),
  },
  forgetAfterMs: /* @__PURE__ */ wholeNumber(60_000),
  facts: {
    must: 'must be a list of facts, each with another name',
    accepts: (value) =>
      Array.isArray(value) && value.every(isFact) && new Set(value.map(({ name }) => name)).size === value.length,
    hint: "Make them with fact('customer', 'string') of fleethook/when.",
  },
}

/** An item of the option `parts`: the result of {@link vehicles}. */
export interface VehiclesPart<Field extends string = string, Of extends readonly Fact[] = readonly Fact[]> {
  readonly fields: readonly Field[] | 'all'
  readonly facts: Of
  /** Called by `createReceiver`. Throws `option_invalid` for a field that is in no catalogue. */
  readonly keep: (receiver: VehiclesHost) => KeptVehicles
}

/** What the part needs of its receiver. */
interface VehiclesHost {
  /** The receiver's own fields. */
  readonly fields: FieldCatalogue
  readonly decode: boolean
  /** Logs a warning. */
  readonly note: (line: string, details: Record<string, unknown>, vin?: string) => void
  /** For the VINs of vehicles whose clock was set back. */
  readonly clocksBehind: Set<string>
  /** Counts the values that are not believed. */
  readonly drift: DriftReport
  /** Takes the fields of rules that do not come. */
  readonly fieldsMissing: (missing: readonly MissingField[]) => void
}

/**
 * A part for the option `parts`: keeps the newest value of these fields for each vehicle, for `context.vehicle` and `context.changes`, the
 * filter `changed`, `receiver.when` and `receiver.vehicles`. It needs an inbox that can keep them: in memory, in SQLite, in Postgres
 * or in Durable Objects.
 *
 * Throws `option_invalid` for a wrong option.
 *
 * @example
 * ```ts
 * import { createReceiver, vehicles } from 'fleethook'
 *
 * const receiver = createReceiver({ secret: 'a-long-random-value', parts: [vehicles({ fields: ['Gear', 'BatteryLevel'] })] })
 * console.log(await receiver.vehicles.get('0FLEETV14T0000004'))
 * ```
 */
export function vehicles<
  const Field extends FieldName | (string & {}) = never,
  const Of extends readonly Fact[] = readonly [],
>(options: VehiclesOptions<Field, Of>): VehiclesPart<Field, Of> {
  checkOptions<VehiclesOptions>('vehicles', options, rules)
  const { fields, facts = none } = options
  // Without the option, its type is the empty list.
  return { fields, facts: facts as Of, keep: (host) => new KeptVehicles(options, host) } // oxlint-disable-line no-unsafe-type-assertion
}

/** The newest state of the vehicles of one receiver. */
export class KeptVehicles implements Subjects {
  /** After which silence it forgets vehicles, and how long it waits between two looks. `undefined`: never. */
  readonly forgets: { readonly afterMs: number; readonly everyMs: number } | undefined
  readonly #slots: Slots
  readonly #edges = new EdgeIndex()
  readonly #facts: readonly Fact[]
  readonly #host: VehiclesHost
  /** The fields of which the log has said that they do not come. */
  #missing: ReadonlySet<string> = new Set()

  constructor({ fields, deltas = {}, forgetAfterMs, facts = none }: VehiclesOptions, host: VehiclesHost) {
    const { fields: ownFields, decode, note } = host
    if (!decode) {
      const problem = 'compares decoded values, and option `decode` of createReceiver is false'
      throw invalid(problem, 'Leave out `decode`. `event.raw` has every value as it was sent.')
    }
    const names = fields === 'all' ? undefined : fields
    checkNames(names, deltas, ownFields)
    checkLimits(ownFields)
    this.#host = host
    this.#facts = facts
    // What is planned needs somebody who keeps time.
    this.#edges.planning = facts[0]?.timing
    const leftOut = (reason: string): void =>
      // What to do: By `reason`: it exceeds a [limit](vehicles.md#limits), or the states for a new rule cannot be read, which is tried again each
      // minute.
      note('a value is not kept in the newest state of its vehicle', { reason })
    const toldLate = (vin: string, episode: string): void =>
      // What to do: `within` of the episode finds the trips of that time by what is known now, as the template `logbook` does each night. Tell facts
      // earlier, or give the episode a larger `corrects`.
      note('a fact was told later than its episodes are corrected: their rows may stay as they are', { episode }, vin)
    this.#slots = new Slots({ fields: names, deltas, facts }, ownFields, leftOut, toldLate)
    this.forgets =
      forgetAfterMs === undefined
        ? undefined
        : { afterMs: forgetAfterMs, everyMs: Math.min(forgetAfterMs / 2, forgetEveryMs) }
  }

  subject(given: unknown): ReturnType<Subjects['subject']> {
    if (!isEdge(given)) return undefined
    const { name } = checkEdge(given, this.#slots, this.#host.fields)
    this.#edges.add(given)
    return { key: subjectOf(name), input: (message, nth = 0) => happeningOf(name, message, nth) }
  }

  changed({ changed = none, first = false, invalid = false }: GivenFilter): (message: Message | undefined) => boolean {
    for (const field of changed) {
      if (this.#slots.keeps(field)) continue
      throw new FleethookError(
        'handler_invalid',
        `The filter \`changed\` names \`${field}\`, which is not among the \`fields\` of the part \`vehicles\`.`,
        { hint: `Give createReceiver the option parts: [vehicles({ fields: ['${field}'] })].` },
      )
    }
    const wanted = new Set<string>(changed)
    const counts = (change: Change): boolean =>
      wanted.has(change.field) && (first || !change.first) && (invalid || !change.invalid)
    return (message) => message?.step?.all.some(counts) === true
  }

  checkEdge(given: unknown): void {
    if (isEdge(given)) return
    throw new FleethookError('handler_invalid', 'The first argument of `receiver.when` is not an edge.', {
      hint: "Use one from `fleethook/when`, for instance becomes('Gear', 'P'). A condition becomes an edge with starts(…) or ends(…).",
    })
  }

  /** A store for an inbox in memory. */
  inMemory(log: Log): VehicleStore {
    return memoryVehicles((vehicles) =>
      // What to do: Use `sqliteInbox`, or keep fewer fields.
      log.warn('the memory for the newest state is full, and vehicles that were silent are forgotten', { vehicles }),
    )
  }

  /** Throws `option_invalid` for an inbox that cannot keep states. `failed`: the inbox failed. */
  in(inbox: Inbox, clock: Clock, ids: DeliveryIds, failed: (error: unknown) => void): VehicleStates {
    const { states: store } = inbox
    if (store === undefined)
      throw new FleethookError(
        'option_invalid',
        'The part `vehicles` needs an inbox that keeps the state of vehicles, and this one cannot keep it.',
        {
          hint: 'Use sqliteInbox(…), postgresInbox(…) or durableObjectInbox(…), or memoryInbox() in a process that stays.',
        },
      )
    // An inbox without timers of its own forgets vehicles by itself.
    const hasTimers = inbox.time !== 'elsewhere' || store.shared !== undefined
    return new VehicleStates({
      store,
      slots: this.#slots,
      edges: this.#edges,
      clock,
      newestSeq: () => ids.newestSeq,
      clockRead: (vin, behindMs) => this.#clockRead(vin, behindMs),
      oddSeen: ({ field, kind, reason }) => this.#host.drift.note(field, kind, reason),
      forgets: hasTimers && this.forgets ? { ...this.forgets, failed } : undefined,
      fieldsMissing: hasTimers ? (missing) => this.#noteMissing(missing) : undefined,
    })
  }

  /** `receiver.vehicles`: how states are read, and how facts are set. */
  whole(intake: SayingIntake, clock: Clock): Vehicles<FieldCatalogue> | undefined {
    const sent = intake.inbox.shared?.states
    const read = sent === undefined ? intake.ownVehicles : this.elsewhere(sent, clock)
    if (read === undefined) return undefined
    const slots = this.#slots
    const saying = new Saying(this.#facts, {
      clock,
      async put(events) {
        await intake.readiness.whenRecovered()
        const kept = intake.say(events)
        if (kept === undefined)
          throw new FleethookError('inbox_unavailable', 'The receiver takes no more facts, because it drains.', {
            hint: 'Set them in the next process.',
          })
        await kept
      },
      async *known() {
        await intake.readiness.whenRecovered()
        yield* sent === undefined ? (intake.states?.known() ?? []) : knownElsewhere(sent, slots)
      },
    })
    return {
      ...read,
      set: (vin, values, time) => saying.set(vin, values, time),
      setAll: (rows, options) => saying.setAll(rows, options),
    }
  }

  /** The states that other processes keep. */
  elsewhere(sent: VehiclesElsewhere, clock: Clock): ReadVehicles<FieldCatalogue> {
    const view = ({ seenMs, gapTo, ...row }: SentVehicle): Snapshot =>
      new Snapshot(VehicleState.read({ ...row, seenMs: seenMs ?? -Infinity }, this.#slots), clock.now(), gapTo)
    return {
      async get(vin) {
        const found = await sent.get(vin)
        return found && view(found)
      },
      async *list({ after } = {}) {
        const find = (last: SentVehicle | undefined, limit: number): Promise<readonly SentVehicle[]> =>
          sent.list({ after: last?.vin ?? after, limit })
        for await (const page of pagesOf(find, firstPage)) yield* page.map(view)
      },
      forget: (vin) => sent.forget(vin),
      stats: () => sent.stats(),
    }
  }

  #noteMissing(missing: readonly MissingField[]): void {
    const { fieldsMissing, note } = this.#host
    fieldsMissing(missing)
    for (const { field, lastAtMs, ...details } of missing) {
      if (this.#missing.has(field)) continue
      const lastAt = lastAtMs === undefined ? undefined : new Date(lastAtMs)
      // What to do: Add the field to the [config](client.md) of the vehicles: `npx fleethook config patch`, or take it out of the rules. `never` of the `heard` vehicles never sent it.
      note('a field that rules name does not come', { field, ...details, lastAt })
    }
    this.#missing = new Set(missing.map(({ field }) => field))
  }

  #clockRead(vin: string, behindMs: number | undefined): void {
    const { clocksBehind, note } = this.#host
    if (behindMs === undefined) clocksBehind.delete(vin)
    else if (!clocksBehind.has(vin) && clocksBehind.size < mostClocks) {
      clocksBehind.add(vin)
      note(
        // What to do: [By `behindMs`](vehicles.md#the-vehicles-clock). Changes of the minutes before may be missing: use `client.refill`.
        'the clock of a vehicle was set back and did not come back: its times are corrected by that',
        { behindMs },
        vin,
      )
    }
  }
}

/** What setting facts needs of an intake. */
interface SayingIntake {
  readonly inbox: Inbox
  readonly states: VehicleStates | undefined
  /** How this process reads the states. `undefined`: others keep them. */
  readonly ownVehicles: ReadVehicles<FieldCatalogue> | undefined
  readonly readiness: { whenRecovered(): Promise<unknown> }
  /** `undefined`: nothing is taken any more. */
  say(events: readonly FactsEvent[]): object | Promise<object> | undefined
}

/** The facts of the vehicles that other processes keep, in pages. */
async function* knownElsewhere(sent: VehiclesElsewhere, slots: Slots): AsyncGenerator<readonly FactsOfVehicle[]> {
  const find = (last: SentVehicle | undefined, limit: number): Promise<readonly SentVehicle[]> =>
    sent.list({ after: last?.vin, limit })
  for await (const page of pagesOf(find))
    yield page.map(({ vin, text }) => ({ vin, facts: factsOf({ text: () => text }, slots) }))
}

/** How often vehicles that were not seen are removed, in milliseconds. Each search can read every one of them. */
const forgetEveryMs = 3_600_000

function checkNames(fields: readonly string[] | undefined, deltas: object, ownFields: FieldCatalogue): void {
  const known = [...Object.keys(builtInFields), ...Object.keys(ownFields)]
  for (const name of [...(fields ?? []), ...Object.keys(deltas)]) {
    const isKnown = known.includes(name)
    if (isKnown && (fields === undefined || fields.includes(name))) continue
    const nearest = nearestName(name, fields === undefined || !isKnown ? known : fields)
    const hint =
      nearest === undefined ? 'Add a field of your own to the option `fields`.' : `Did you mean \`${nearest}\`?`
    throw isKnown
      ? invalid(`has a delta for \`${name}\`, which is not among its \`fields\``, hint)
      : invalid(`names \`${name}\`, which is not in the catalogue`, hint)
  }
}

const invalid = (problem: string, hint: string): FleethookError =>
  new FleethookError('option_invalid', `The part \`vehicles\` ${problem}.`, { hint })

/** More vehicles with a wrong clock are not counted. */
const mostClocks = 10_000

/** What happened, for the handlers of an edge. Throws the error of an edge that failed. `nth`: it can happen more than once in a message. */
function happeningOf(
  edge: string,
  message: Message,
  nth: number,
): Omit<Happening, 'vehicle'> & { readonly vehicle: AnyVehicleView } {
  const { step } = message
  const found = step?.happened.filter((each) => each.edge === edge)[nth]
  if (found !== undefined && 'error' in found) throw found.error
  const vehicle = found && step?.viewAt(found)
  const { event, id } = message
  if (found === undefined || vehicle === undefined || event === undefined || event.topic === 'malformed')
    throw new FleethookError('handler_invalid', `The edge \`${edge}\` did not happen in this message.`)
  const { vin } = vehicle
  return { vin, change: found.change, vehicle, edge, id: `${vin}:${edge}:${id}${nth === 0 ? '' : `:${nth}`}`, event }
}
