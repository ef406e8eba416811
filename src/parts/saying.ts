import { type Clock, elapsedMs, pause } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import { isObject } from '../base/options.ts'
import type { FactsEvent } from '../events/event.ts'
import { nearestName } from '../events/fields.ts'
import type { FieldValue } from '../events/values.ts'
import { type Fact, longestFact } from '../vehicles/fact.ts'
import type { Facts } from '../vehicles/facts.ts'
import type { FactsOfVehicle } from '../vehicles/open.ts'
import { isDeepEqual } from '../vehicles/state.ts'
import type { FactRow, FactTime, SayingVehicles, SetAllOptions, SetAllResult } from '../vehicles/vehicles.ts'

/** What it needs of a receiver. */
interface SayingHost {
  readonly clock: Clock
  /** Resolves when the inbox has the messages, and rejects when it does not take them. */
  readonly put: (events: readonly FactsEvent[]) => Promise<void>
  /** The facts of all vehicles that have some, in pages. */
  readonly known: () => AsyncIterable<readonly FactsOfVehicle[]>
}

/** As many vehicles are told in one write. */
const pageSize = 250

/** How long a full inbox is waited for before it is tried again, in milliseconds, and for how long in all. */
const againMs = 100
const mostTries = 600

const none: ReadonlyMap<string, FieldValue> = new Map()

/** `set` and `setAll` of `receiver.vehicles`. */
export class Saying implements SayingVehicles {
  readonly #facts: ReadonlyMap<string, Fact>
  readonly #host: SayingHost

  constructor(facts: readonly Fact[], host: SayingHost) {
    this.#facts = new Map(facts.map((fact) => [fact.name, fact]))
    this.#host = host
  }

  async set(vin: string, values: Readonly<Record<string, unknown>>, time: FactTime = {}): Promise<void> {
    checkVin(vin)
    const written = this.#written(vin, values)
    if (written.size === 0)
      throw wrong('`vehicles.set` was given no fact', 'Name at least one, for instance { customer: null }.')
    const { from, until } = checkedTime(time, this.#host.clock.now())
    await this.#host.put([this.#event(vin, written, { from, until })])
  }

  async setAll(
    rows: Iterable<FactRow> | AsyncIterable<FactRow>,
    { facts: given }: SetAllOptions = {},
  ): Promise<SetAllResult> {
    const { clock, known } = this.#host
    const breathe = breathing(clock)
    const names = new Set<string>(given)
    for (const name of names) this.#factOf(name)
    const wanted = await this.#wanted(rows, names, breathe)
    let [told, page] = [0, [] as FactsEvent[]]
    const tell = async (vin: string, differing: ReadonlyMap<string, FieldValue>): Promise<void> => {
      told += 1
      page.push(this.#event(vin, differing, {}))
      if (page.length < pageSize) return
      const full = page
      page = []
      await this.#put(full)
      await breathe()
    }
    for await (const vehicles of known()) {
      await breathe()
      const nowMs = clock.now()
      for (const { vin, facts } of vehicles) {
        const row = wanted.get(vin)
        wanted.delete(vin)
        if (facts === undefined && row === undefined) continue
        const differing = differingOf(facts, row ?? none, names, nowMs)
        if (differing.size > 0) await tell(vin, differing)
      }
    }
    for (const [vin, row] of wanted) {
      const differing = differingOf(undefined, row, names, 0)
      if (differing.size > 0) await tell(vin, differing)
    }
    if (page.length > 0) await this.#put(page)
    return { told }
  }

  /** The facts of each row as they are stored. Adds their names. */
  async #wanted(
    rows: Iterable<FactRow> | AsyncIterable<FactRow>,
    names: Set<string>,
    breathe: () => Promise<void>,
  ): Promise<Map<string, ReadonlyMap<string, FieldValue>>> {
    const wanted = new Map<string, ReadonlyMap<string, FieldValue>>()
    /** Returns whether others get their turn now. */
    const add = (row: FactRow): boolean => {
      const { vin } = row
      checkVin(vin)
      if (wanted.has(vin))
        throw wrong(`\`vehicles.setAll\` was given the vehicle ${vin} twice`, 'Give one row for each vehicle.')
      const written = this.#written(vin, row, 'vin')
      for (const name of written.keys()) names.add(name)
      return wanted.set(vin, written).size % 500 === 0
    }
    // A promise for each row of a list would be most of the time.
    if (Symbol.iterator in rows) {
      for (const row of rows) if (add(row)) await breathe()
    } else {
      for await (const row of rows) if (add(row)) await breathe()
    }
    return wanted
  }

  /** Waits for room, because a table is longer than the messages that may wait. */
  async #put(events: readonly FactsEvent[]): Promise<void> {
    for (let tries = 1; ; tries += 1)
      try {
        return await this.#host.put(events)
      } catch (error) {
        const isFull = error instanceof FleethookError && error.code === 'inbox_full'
        if (!isFull || tries >= mostTries) throw error
        await pause(this.#host.clock, againMs)
      }
  }

  #event(
    vin: string,
    written: ReadonlyMap<string, FieldValue>,
    { from, until }: { readonly from?: Date | undefined; readonly until?: Date | undefined },
  ): FactsEvent {
    const receivedAt = new Date(this.#host.clock.now())
    const at = from ?? receivedAt
    return {
      topic: 'facts',
      vin,
      createdAt: at.toISOString(),
      at,
      receivedAt,
      id: `facts:${vin}:${at.getTime()}`,
      format: null,
      raw: null,
      meta: {},
      facts: Object.fromEntries(written),
      from,
      until,
    }
  }

  /** The values as they are stored. `null`: none. A fact that is left out says nothing. `other`: a column that is no fact. */
  #written(vin: string, values: Readonly<Record<string, unknown>>, other?: string): ReadonlyMap<string, FieldValue> {
    if (!isObject(values) || Array.isArray(values))
      throw wrong('The facts of a vehicle are not an object', "Write for instance { customer: 'c-12' }.")
    const written = new Map<string, FieldValue>()
    for (const name of Object.keys(values)) {
      const value = values[name]
      if (value === undefined || name === other) continue
      const fact = this.#factOf(name)
      const stored = value === null ? null : storedOf(fact, vin, value)
      if (isTooLong(stored))
        throw wrong(
          `The fact \`${name}\` has more than ${longestFact} characters`,
          'Keep it elsewhere, and its key here.',
        )
      written.set(name, stored)
    }
    return written
  }

  #factOf(name: string): Fact {
    const fact = this.#facts.get(name)
    if (fact !== undefined) return fact
    const names = [...this.#facts.keys()]
    const nearest = nearestName(name, names)
    const hint =
      names.length === 0
        ? "It keeps none. Declare it: vehicles({ fields, facts: [fact('customer', 'string')] })."
        : nearest === undefined
          ? `It keeps ${names.join(', ')}.`
          : `Did you mean \`${nearest}\`?`
    throw wrong(`The part \`vehicles\` keeps no fact \`${name}\``, hint)
  }
}

/** Says which row of a table is wrong. */
function storedOf(fact: Fact, vin: string, value: unknown): FieldValue {
  try {
    return fact.write(value)
  } catch (error) {
    if (!(error instanceof FleethookError)) throw error
    const { message, hint, code } = error
    throw new FleethookError(code, `The fact \`${fact.name}\` of ${vin} cannot be set. ${message}`, {
      hint,
      cause: error,
    })
  }
}

const isTooLong = (stored: FieldValue): boolean =>
  typeof stored === 'string' || (typeof stored === 'object' && stored !== null)
    ? JSON.stringify(stored).length > longestFact
    : false

/** The facts that are to be another one now. */
function differingOf(
  facts: Facts | undefined,
  row: ReadonlyMap<string, FieldValue>,
  names: ReadonlySet<string>,
  nowMs: number,
): ReadonlyMap<string, FieldValue> {
  let differing: Map<string, FieldValue> | undefined
  for (const name of names) {
    const is = facts?.at(name, nowMs) ?? null
    const wanted = row.get(name) ?? null
    if (!isDeepEqual(is, wanted)) (differing ??= new Map()).set(name, wanted)
  }
  return differing ?? none
}

/** The longest that a table keeps others waiting, in milliseconds. */
const mostBusyMs = 20

/** Lets others have their turn when it has taken long. */
function breathing(clock: Clock): () => Promise<void> {
  let sinceMs = elapsedMs(clock)
  return async () => {
    if (elapsedMs(clock) - sinceMs < mostBusyMs) return
    await pause(clock, 0)
    sinceMs = elapsedMs(clock)
  }
}

function checkVin(vin: unknown): void {
  if (typeof vin === 'string' && vin.length > 0 && vin.length <= 64) return
  throw wrong('A fact was set for no VIN', 'A VIN is a text of 1 to 64 characters.')
}

function checkedTime(time: unknown, nowMs: number): FactTime {
  const given: unknown = time
  if (!isObject(given)) throw wrong('The time of a fact is not an object', 'Write { from, until }, each a Date.')
  const { from, until, ...others } = given
  const [other] = Object.keys(others)
  if (other !== undefined) throw wrong(`The time of a fact has \`${other}\``, 'Write { from, until }, each a Date.')
  const read = (name: string, date: unknown): Date | undefined => {
    if (date === undefined) return undefined
    if (date instanceof Date && !Number.isNaN(date.getTime())) return date
    throw wrong(`\`${name}\` of a fact is not a valid Date`, 'Write for instance new Date(ms).')
  }
  const [start, end] = [read('from', from), read('until', until)]
  if (end !== undefined && end.getTime() <= (start?.getTime() ?? nowMs))
    throw wrong('A fact was set `until` a time that is not after `from`', '`from` is now when it is left out.')
  return { from: start, until: end }
}

const wrong = (what: string, hint: string): FleethookError => new FleethookError('option_invalid', `${what}.`, { hint })
