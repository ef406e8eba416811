/* One receiver with each kind of rule over facts, and what can be asked of it: in a process of its own, in a Worker, or here. Bundled for Workers, too. */
import { branch } from '../../src/branch.ts'
import { createReceiver, type Receiver, type ReceiverOptions, vehicles } from '../../src/index.ts'
import {
  all,
  changed,
  episode,
  fact,
  has,
  hours,
  inside,
  is,
  not,
  rulesFor,
  silent as silentFor,
  starts,
} from '../../src/when.ts'
import { gapNow } from './everywhere.ts'

/** Numbers that may jump: what a battery can do is not the question here. */
export const ownFields = { Level: 'number', Miles: 'number' } as const
const { below, span } = rulesFor(ownFields)
const customer = fact('customer', 'string')
const lowBattery = fact('lowBattery', 'number')
const booking = fact('booking', 'string')
const home = fact('home', 'area')
const tariff = fact('tariff', 'string')

export interface FactsSettings {
  /** The rules about time count in this. */
  readonly unitSeconds: number
  /** Where days end for the episode `day`. */
  readonly zone: string
  /** When it is night, in UTC. */
  readonly night: readonly [from: string, until: string]
  readonly forgetAfterMs?: number
  /** With a branch that keeps the fact `customer` only. */
  readonly branch?: boolean
}

/** What a handler was told. It is kept outside of the process that handles. */
export interface Noted {
  readonly vin: string
  readonly rule: string
  /** By the clock of the vehicle or the business. */
  readonly at: number
  readonly id: string
  readonly acrossGap: boolean
  readonly text: string
}

type Note = (noted: Noted, env: unknown) => unknown

/** Handlers of a vehicle whose name begins with `FAILS` fail until they are replayed, and those of `HANGS` never end. */
export async function endOf(vin: string, isReplayed: boolean): Promise<void> {
  if (isReplayed) return
  if (vin.startsWith('FAILS')) throw new Error('as the test wishes')
  if (vin.startsWith('HANGS')) await new Promise(() => {})
}

const partsOf = ({ forgetAfterMs }: FactsSettings) =>
  [
    vehicles({
      fields: ['Level', 'Miles', 'Gear', 'Location'],
      facts: [customer, lowBattery, booking, home, tariff],
      ...(forgetAfterMs === undefined ? {} : { forgetAfterMs }),
    }),
  ] as const

function rulesOf({ unitSeconds, zone, night }: FactsSettings) {
  const units = (count: number) => ({ seconds: count * unitSeconds })
  const driving = is('Gear', 'D')
  const measures = { miles: span('Miles') }
  return {
    edges: {
      low: starts(below('Level', lowBattery)),
      home: starts(inside(home)),
      away: starts(not(inside(home))),
      unbooked: starts(all(driving, not(has(booking)))).after(units(5)),
      booked: starts(has(booking)),
      silent: silentFor(units(10)),
      night: starts(all(has(tariff), hours(...night, { zone: 'UTC' }))),
    },
    customer: changed(customer),
    booking: changed(booking),
    trip: episode('trip', { during: driving, by: [customer], waits: units(2), measures }),
    day: episode('day', { during: driving, splitsAt: { every: 'day', zone }, waits: units(2), measures }),
    // In this zone, the day ends when the night begins.
    midnight: episode('midnight', {
      ...{ during: driving, waits: units(2), measures },
      splitsAt: { every: 'day', zone: `-${night[0]}` },
    }),
  }
}

// A fact that fails is a dead letter at once.
const create = (settings: FactsSettings, options: ReceiverOptions) =>
  createReceiver({ ...options, fields: ownFields, retry: { attempts: 1 }, parts: partsOf(settings) })

type Created = ReturnType<typeof create>

/** What tests use of it. */
export interface FactsReceiver extends Pick<
  Receiver,
  'open' | 'drain' | 'ack' | 'durability' | 'inbox' | 'fetch' | 'accept'
> {
  /** `env`: of a Worker. */
  ask(question: Question, env?: object): Promise<unknown>
}

/** `note` is told by each handler, before it fails or hangs. */
export function factsReceiver(settings: FactsSettings, options: ReceiverOptions, note: Note): FactsReceiver {
  const receiver = create(settings, options)
  const rules = rulesOf(settings)
  for (const [rule, edge] of Object.entries(rules.edges))
    receiver.when(edge, async ({ vin, change: { at, acrossGap }, id, vehicle }, { env, delivery }) => {
      await note({ vin, rule, at: at.getTime(), id, acrossGap, text: vehicle.fact(customer) ?? '' }, env)
      await endOf(vin, delivery.replayed)
    })
  for (const rule of ['customer', 'booking'] as const)
    receiver.when(rules[rule], async ({ vin, change, id }, { env, delivery }) => {
      const text = `${change.from ?? 'nobody'} > ${change.to ?? 'nobody'}`
      await note({ vin, rule, at: change.at.getTime(), id, acrossGap: change.acrossGap, text }, env)
      await endOf(vin, delivery.replayed)
    })
  receiver.when(rules.trip, ({ vin, change }, { env }) => note(rowOf(vin, 'trip', change, change.customer), env))
  receiver.when(rules.day, ({ vin, change }, { env }) => note(rowOf(vin, 'day', change, null), env))
  receiver.when(rules.midnight, ({ vin, change }, { env }) => note(rowOf(vin, 'midnight', change, null), env))
  receiver.on('*', async (event, { env, vehicle, delivery }) => {
    if (!('vin' in event) || event.vin === undefined) return
    const text = `${event.topic} ${vehicle?.fact(customer) ?? 'nobody'} ${vehicle?.value('Level')}`
    const then = delivery.replayed ? `, then ${vehicle?.fact(customer, event.at) ?? 'nobody'}` : ''
    const noted = { vin: event.vin, rule: delivery.replayed ? 'again' : 'topic', at: event.at.getTime(), id: event.id }
    await note({ ...noted, acrossGap: false, text: text + then }, env)
  })
  if (settings.branch === true) addBranch(receiver, note)
  return Object.assign(receiver, { ask: (question: Question, env?: object) => answerOf(receiver, question, env) })
}

type Row = {
  readonly id: string
  readonly at: Date
  readonly startedAt: Date
  readonly acrossGap: boolean
  readonly revision: number
  readonly revoked: boolean
  readonly miles: { readonly from: number | null; readonly to: number | null }
}

/** A row of an episode: its text begins with `revoked` when there is no such row. */
function rowOf(vin: string, rule: string, { id, at, acrossGap, revoked, miles }: Row, of: string | null): Noted {
  const text = `${revoked ? 'revoked ' : ''}${of ?? 'nobody'} ${miles.from}-${miles.to}`
  return { vin, rule, at: at.getTime(), id, acrossGap, text }
}

function addBranch(receiver: Created, note: Note): void {
  const parts = [vehicles({ fields: ['Gear'], facts: [customer] })] as const
  branch(receiver, { name: 'own', parts }).when(changed(customer), ({ vin, change, id, vehicle }, { env }) => {
    const text = `${change.to} of ${vehicle.facts.map(({ name }) => name).join()}`
    return note({ vin, rule: 'branch', at: change.at.getTime(), id, acrossGap: change.acrossGap, text }, env)
  })
}

/** A vehicle, as far as facts are concerned. `atThen`: its facts at another time. */
export interface Shown {
  readonly seenAt: number | null
  readonly facts: Readonly<Record<string, unknown>>
  readonly atThen: Readonly<Record<string, unknown>>
}

/** What can be asked of a receiver. */
export type Question =
  | {
      readonly what: 'set'
      readonly vin: string
      readonly facts: Readonly<Record<string, unknown>>
      readonly from: number | undefined
      readonly until: number | undefined
    }
  | { readonly what: 'setAll'; readonly rows: readonly FactRow[]; readonly facts: readonly string[] | undefined }
  | { readonly what: 'shown'; readonly vin: string; readonly at: number | undefined }
  | { readonly what: 'dead' | 'replay' | 'handled' | 'again' | 'forget' | 'gap'; readonly vin: string }

export interface FactRow {
  readonly vin: string
  readonly [fact: string]: unknown
}

async function answerOf(receiver: Created, question: Question, env: object | undefined): Promise<unknown> {
  switch (question.what) {
    case 'set': {
      const [from, until] = [question.from, question.until].map((ms) => (ms === undefined ? undefined : new Date(ms)))
      return Reflect.apply(receiver.vehicles.set, undefined, [question.vin, question.facts, { from, until }])
    }
    case 'setAll': {
      const given = question.facts === undefined ? {} : { facts: question.facts }
      return Reflect.apply(receiver.vehicles.setAll, undefined, [question.rows, given])
    }
    case 'shown':
      return shown(receiver, question.vin, question.at)
    case 'dead':
      return (await Array.fromAsync(receiver.deadLetters.list({ vin: question.vin }))).length
    case 'replay':
      return receiver.deadLetters.replay({ vin: question.vin }, { env })
    case 'handled':
    case 'again': {
      const all = { vin: question.vin, from: new Date(0), to: new Date(8_640_000_000_000_000) }
      return receiver.replay({ ...all, dryRun: question.what === 'handled' }, { env })
    }
    case 'forget':
      return receiver.vehicles.forget(question.vin)
    case 'gap':
      return receiver.from({ feed: async ({ tell }) => void (await tell(gapNow(question.vin))) }, { env })
  }
}

async function shown(receiver: Created, vin: string, at: number | undefined): Promise<Shown | null> {
  const vehicle = await receiver.vehicles.get(vin)
  if (vehicle === undefined) return null
  const facts = vehicle.facts.flatMap(({ name, value }) => (value === undefined ? [] : [[name, value]]))
  const date = at === undefined ? undefined : new Date(at)
  const known: readonly (readonly [string, unknown])[] =
    date === undefined
      ? []
      : [
          ['customer', vehicle.fact(customer, date)],
          ['lowBattery', vehicle.fact(lowBattery, date)],
        ]
  return {
    seenAt: vehicle.seenAt?.getTime() ?? null,
    facts: Object.fromEntries(facts),
    atThen: Object.fromEntries(known.filter(([, value]) => value !== undefined)),
  }
}
