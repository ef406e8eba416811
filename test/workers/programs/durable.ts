import {
  durableObjectInbox,
  type DurableObjectInboxOptions,
  inboxObject,
  type InboxObjectClass,
  type ObjectNamespace,
} from '../../../adapters/inbox/durable-object.ts'
import { type Branch, branch } from '../../../src/branch.ts'
import { worker, type Worker } from '../../../adapters/workers.ts'
import {
  createReceiver,
  type Receiver,
  type ReceiverOptions,
  type Vehicles,
  vehicles,
  type VehiclesOptions,
} from '../../../src/index.ts'
import type { FieldName } from '../../../src/normalize.ts'
import type { Change } from '../../../src/when.ts'
import { becomes, below, changed, type Edge, fact, has, starts, type VehicleView } from '../../../src/when.ts'
import { gapNow, lineOf, rules } from '../../vehicles/everywhere.ts'

const [customer, limit, booking] = [fact('customer', 'string'), fact('limit', 'number'), fact('booking', 'string')]

export interface Bindings {
  readonly WEBHOOK_SECRET: string
  readonly FLEETHOOK_INBOX: ObjectNamespace
  readonly LOG: { fetch(url: string, request: { method: string; body: string }): Promise<unknown> }
}

export interface DurableSettings {
  readonly receiver?: Omit<ReceiverOptions<Bindings>, 'secret' | 'inbox'>
  readonly inbox?: Omit<DurableObjectInboxOptions<Bindings>, 'objects'>
  /** The time that a handler takes before it records what it handled. */
  readonly handlerMs?: number
  /** Vehicles whose messages fail until this attempt, unless they are replayed. */
  readonly failing?: Readonly<Record<string, number>>
  /** A vehicle whose first message is recorded and then never done. */
  readonly hanging?: string
  /** Keep the newest state of vehicles. */
  readonly vehicles?: VehiclesOptions<FieldName>
  /** Also write down what happens to vehicles: by the rules of `everywhere.ts`, each change of the number, or that it was 2 for three seconds, or what follows from facts. */
  readonly edges?: 'rules' | 'numbers' | 'times' | 'facts'
  /** With a branch `crm`, whose handlers record `crm` and what they handle. Its first messages of these vehicles fail until this attempt. */
  readonly branch?: { readonly failing?: Readonly<Record<string, number>> }
  /** Handle this number at once, and record their count and the sum of their numbers. */
  readonly batch?: number
}

/** A receiver whose handlers record what they handle. */
export function receiverOf(
  { receiver: options, vehicles: kept, handlerMs, failing = {}, hanging, edges, batch }: DurableSettings,
  inbox: NonNullable<ReceiverOptions['inbox']>,
): Receiver<Bindings> & { readonly vehicles?: Vehicles } {
  const facts = edges === 'facts' ? [customer, limit, booking] : []
  const parts = kept === undefined ? [] : [vehicles({ ...kept, facts })]
  const receiver = createReceiver({ ...options, secret: (env: Bindings) => env.WEBHOOK_SECRET, inbox, parts })
  const write = (env: Bindings, entry: object): Promise<unknown> =>
    env.LOG.fetch('http://log/', { method: 'POST', body: JSON.stringify(entry) })
  if (batch !== undefined) {
    return receiver.batch('data', { size: batch, withinMs: 2_500 }, async (events, { env }) => {
      const number = events.reduce((sum, { data }) => sum + Number(data.BatteryLevel), 0)
      await write(env, { vin: `${events.length} at once`, number })
    })
  }
  const found: Readonly<Record<string, readonly Edge[]>> = {
    rules,
    numbers: [changed('BatteryLevel')],
    times: [becomes('BatteryLevel', 2).after({ seconds: 3 })],
    facts: [starts(below('BatteryLevel', limit)), changed(customer), starts(has(booking))],
  }
  for (const rule of found[edges ?? ''] ?? [])
    receiver.when(rule, async ({ vin, edge, event, change, id, vehicle }, { env, delivery }) => {
      const { id: of, attempt, redelivered, replayed } = delivery
      if (!replayed && attempt < (failing[vin] ?? 0)) throw new Error(`not yet: ${attempt}`)
      const { from = null, to = null }: Partial<Change> =
        'dueAt' in change ? { from: Number(Reflect.get(change, 'since')), to: Date.now() } : change
      // A handler runs in the object, and asks for the newest state as the Worker does.
      const newest = (await receiver.vehicles?.get(vin))?.value('BatteryLevel') ?? null
      const happened = { id, line: lineOf({ edge, event, change }), from, to, newest }
      const number = vehicle.value('BatteryLevel')
      await write(env, { vin, number, delivery: of, attempt, redelivered, replayed, happened })
    })
  return receiver.on('*', async (event, { env, delivery }) => {
    const { vin = '', topic } = event
    if (handlerMs !== undefined) await new Promise((resolve) => setTimeout(resolve, handlerMs))
    if (!delivery.replayed && delivery.attempt < (failing[vin] ?? 0)) throw new Error(`not yet: ${delivery.attempt}`)
    const number = topic === 'data' ? event.data.BatteryLevel : topic
    const { id, attempt, redelivered, replayed } = delivery
    await write(env, { vin, number, delivery: id, attempt, redelivered, replayed })
    if (vin === hanging && number === 1) await new Promise(() => {})
  })
}

function branchOf(
  receiver: Receiver<Bindings>,
  { branch: given, receiver: options }: DurableSettings,
): Branch<Bindings> {
  const { failing = {} } = given ?? {}
  const { retry } = options ?? {}
  return branch(receiver, { name: 'crm', ...(retry && { retry }) }).on('data', async (event, { env, delivery }) => {
    const { id, attempt, redelivered, replayed } = delivery
    const { vin } = event
    if (!replayed && attempt < (failing[vin] ?? 0)) throw new Error(`not yet: ${attempt}`)
    const entry = { vin: `crm ${vin}`, number: event.data.BatteryLevel, delivery: id, attempt, redelivered, replayed }
    await env.LOG.fetch('http://log/', { method: 'POST', body: JSON.stringify(entry) })
  })
}

/** A Worker whose handlers record what they handle. It also shows its dead letters and its counts. */
export function durableWorker(settings: DurableSettings): {
  readonly FleethookInbox: InboxObjectClass
  readonly main: Worker<Bindings>
} {
  const receiver = receiverOf(
    settings,
    durableObjectInbox<Bindings>({ ...settings.inbox, objects: (env) => env.FLEETHOOK_INBOX }),
  )
  const crm = settings.branch === undefined ? undefined : branchOf(receiver, settings)
  const { fetch } = worker<Bindings>(receiver)
  return {
    FleethookInbox: inboxObject(receiver),
    main: {
      async fetch(request, env, context) {
        const { pathname, searchParams } = new URL(request.url)
        // Only to let `worker` see the bindings.
        await fetch(new Request('http://self/services/collector/health'), env, context)
        const { deadLetters } = receiver
        const id = searchParams.get('id') ?? ''
        const vin = searchParams.get('vin') ?? undefined
        const limit = Number(searchParams.get('limit') ?? 100)
        const dryRun = searchParams.has('dryRun')
        const asked: Readonly<Record<string, () => unknown>> = {
          '/stats': () => receiver.stats(),
          ...branchAsked(crm, id, env),
          '/dead': async () => (await Array.fromAsync(deadLetters.list({ vin }))).slice(0, limit),
          '/find': async () => (await deadLetters.get(id)) ?? null,
          '/replay': () => deadLetters.replay(id, { env }),
          '/discard': () => deadLetters.discard({ vin, dryRun }),
          '/vehicle': async () => shown(await receiver.vehicles?.get(vin ?? '')),
          '/vehicles': async () => {
            const after = searchParams.get('after') ?? undefined
            return (await Array.fromAsync(receiver.vehicles?.list({ after }) ?? [])).slice(0, limit).map(shown)
          },
          ...factsAsked(receiver, searchParams),
          '/forget': () => receiver.vehicles?.forget(vin ?? ''),
          '/erase': () => receiver.forget(vin ?? '', { dryRun }),
          '/failing': () => receiver.failing(),
          '/count': () => receiver.vehicles?.stats(),
          '/gap': () => receiver.from({ feed: async ({ tell }) => void (await tell(gapNow(vin))) }, { env, context }),
        }
        const answer = asked[pathname]
        return answer === undefined ? fetch(request, env, context) : Response.json((await answer()) ?? null)
      },
    },
  }
}

/** What a Worker can be asked about its branch. */
const branchAsked = (
  crm: Branch<Bindings> | undefined,
  id: string,
  env: Bindings,
): Readonly<Record<string, () => unknown>> => ({
  '/crm-dead': async () => Array.fromAsync(crm?.deadLetters.list() ?? []),
  '/crm-replay': () => crm?.deadLetters.replay(id, { env }),
  '/crm-failing': () => crm?.failing(),
})

/** What a Worker can be asked about facts. */
const factsAsked = (
  { vehicles: kept }: ReturnType<typeof receiverOf>,
  query: URLSearchParams,
): Readonly<Record<string, () => unknown>> => ({
  '/set': () =>
    kept?.set(query.get('vin') ?? '', JSON.parse(query.get('facts') ?? '{}'), {
      from: dateIn(query, 'from'),
      until: dateIn(query, 'until'),
    }),
  '/set-all': () => kept?.setAll(JSON.parse(query.get('rows') ?? '[]')),
})

function dateIn(query: URLSearchParams, name: string): Date | undefined {
  const ms = query.get(name)
  return ms === null ? undefined : new Date(Number(ms))
}

function shown(vehicle: VehicleView | undefined): unknown {
  if (vehicle === undefined) return undefined
  const { vin, online = null, seenAt = null } = vehicle
  const level = vehicle.value('BatteryLevel')
  const certainty = vehicle.isCertain('BatteryLevel') ? 'certain' : 'uncertain'
  const facts = vehicle.facts.flatMap(({ name, value }) => (value === undefined ? [] : [[name, value] as const]))
  const said = facts.length === 0 ? {} : { facts: Object.fromEntries(facts) }
  return { ...said, vin, online, seenAt, values: level === undefined ? {} : { BatteryLevel: [level, certainty] } }
}

/** The receiver as the module of a Worker. Its path `/evict` ends one object without notice. */
export function durableSource(settings: DurableSettings): string {
  return `
    import { durableWorker } from './durable.ts'
    const made = durableWorker(${JSON.stringify(settings)})
    export class FleethookInbox extends made.FleethookInbox {
      #state
      constructor(state, env) {
        super(state, env)
        this.#state = state
      }
      fetch(request) {
        if (request.url.endsWith('/evict')) this.#state.abort('evicted')
        return super.fetch(request)
      }
    }
    export default {
      async fetch(request, env, context) {
        const { pathname, searchParams } = new URL(request.url)
        if (pathname !== '/evict') return made.main.fetch(request, env, context)
        const objects = env.FLEETHOOK_INBOX
        const id = objects.idFromName('shard-' + searchParams.get('shard'))
        await objects.get(id).fetch('http://object/evict').catch(() => {})
        return new Response()
      },
    }`
}

/** The same handlers with an inbox in memory. */
export function memorySource(settings: DurableSettings): string {
  return `
    import { memoryInbox } from '../../../src/index.ts'
    import { worker } from '../../../adapters/workers.ts'
    import { receiverOf } from './durable.ts'
    export class FleethookInbox {}
    export default worker(receiverOf(${JSON.stringify(settings)}, memoryInbox()))`
}
