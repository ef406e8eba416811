import { FleethookError } from '../../../src/base/errors.ts'
import { gapOf } from '../../../src/events/gap.ts'
import type { RequestScope } from '../../../src/hosting/execution-context.ts'
import { createDeadLetterReader, createMessages } from '../../../src/inbox/archive.ts'
import { erasedIn, type Forgotten } from '../../../src/observe/dead-letters.ts'
import {
  type Archive,
  type Inbox,
  type InboxMessage,
  type InboxHost,
  type ListedMessage,
  RefusedElsewhere,
} from '../../../src/inbox/inbox.ts'
import type { Asked } from '../../../src/observe/observer.ts'
import { bytesOfMessage, pageBytes } from '../../../src/base/pages.ts'
import { laneOf } from '../../../src/inbox/receipts.ts'
import type { Failing, FailingHandler } from '../../../src/observe/stats.ts'
import type { SentVehicle, VehiclesElsewhere } from '../../../src/inbox/vehicle-store.ts'
import { fnv1a } from '../../../src/wire/identity.ts'
import { ForwardingInbox } from '../forwarding.ts'
import type { Question, Questions, Reply } from './object.ts'
import type { ObjectNamespace } from './platform.ts'

/** The most times that a Worker calls an object that was just moved or restarted. */
const tries = 3

interface ObjectsOptions {
  readonly objects: (env: never) => ObjectNamespace
  readonly shards: number
  /** The bindings of the last request, for calls that bring none. */
  readonly bindings: () => unknown
}

/** The inbox of a Worker in front of objects: forwards messages to the objects of their lanes, and asks the objects for dead letters and replays. */
export class ObjectsInbox extends ForwardingInbox {
  readonly durability = 'replicated'
  /** A Worker lives only while it has requests. */
  readonly time = 'elsewhere'
  override readonly shared: NonNullable<Inbox['shared']>
  readonly archive: Asked
  readonly #options: ObjectsOptions
  readonly #settings: InboxHost
  readonly #everyShard: readonly number[]
  /** The name of the branch whose questions it asks. */
  readonly #branch: string | undefined
  /** The receiver or one of its branches keeps states of vehicles. */
  #keepsVehicles: boolean

  constructor(settings: InboxHost, options: ObjectsOptions, branch?: string) {
    super(settings)
    this.#branch = branch
    this.#keepsVehicles = settings.states !== undefined
    this.#settings = settings
    this.#options = options
    this.#everyShard = Array.from({ length: options.shards }, (_, shard) => shard)
    this.shared = { handsOut: 'elsewhere', states: settings.states && this.#vehicles() }
    const all: Pick<Archive, 'list'> = { list: (what, which) => this.#list(what, which) }
    const { read } = settings
    const reader = createDeadLetterReader(all, read)
    this.archive = {
      deadLetters: {
        list: reader.list,
        get: reader.get,
        replay: (which, { env } = {}) => this.#total('replayDead', which, env),
        discard: (which) => this.#total('discardDead', which),
      },
      messages: createMessages(all, read),
      // Objects keep no handled messages.
      replay: async () => 0,
      failing: async () => togetherOf(await this.#askAll('failing', undefined)),
    }
  }

  /** The objects give each message to the branch. What asks for it here asks them. */
  reader(name: string, settings: InboxHost): Inbox {
    this.#keepsVehicles ||= settings.states !== undefined
    return new ObjectsInbox(settings, this.#options, name)
  }

  protected async forward(messages: readonly InboxMessage[], from?: RequestScope): Promise<void> {
    const { openGaps = () => [] } = this.#settings.receiver ?? {}
    const keepsVehicles = this.#keepsVehicles
    const env = from?.env ?? this.#options.bindings()
    // The event of a gap of all vehicles goes to one object, but the states in the others become uncertain, too.
    const ofAll = messages.flatMap(({ event }) =>
      keepsVehicles && event?.topic === 'gap' && event.vin === undefined ? [gapOf(event)] : [],
    )
    if (ofAll.length > 0) await this.#askAll('noteGaps', ofAll, env)
    const gaps = keepsVehicles ? openGaps() : []
    const stored = messages.map(({ event: _, ...message }): InboxMessage => message)
    const byShard = Map.groupBy(stored, ({ lane }) => this.#shardOf(lane))
    const answers = [...byShard].map(async ([shard, group]) => {
      const lanes = new Set(group.map(({ lane }) => lane))
      const concerned = gaps.filter(({ vin }) => vin === undefined || lanes.has(laneOf(vin)))
      // Storing a message without marking the gap is better than not storing it.
      if (concerned.length > 0) await this.#ask(shard, env, 'noteGaps', concerned).catch(() => {})
      return this.#ask(shard, env, 'put', group)
    })
    const refusal = (await Promise.all(answers)).find((answer) => answer !== undefined)
    if (refusal !== undefined) throw new RefusedElsewhere(refusal)
  }

  // Asks all objects: an object that had the vehicle before `shards` was changed may still have something of it.
  readonly forget = async (vin: string, dryRun: boolean): Promise<Forgotten> => {
    return erasedIn(await this.#askAll('forget', { vin, dryRun }))
  }

  /** A lane always has the same object, as long as the number of shards stays the same. */
  #shardOf(lane: string): number {
    return Number.parseInt(fnv1a(lane).slice(-8), 16) % this.#options.shards
  }

  async #send(shard: number, env: unknown, body: string): Promise<Reply> {
    const namespace = bound(this.#options.objects(env as never))
    for (let turn = 1; ; turn++) {
      try {
        // A stub that has failed stays broken, so each try has its own.
        const stub = namespace.get(namespace.idFromName(`shard-${shard}`))
        const answer = await stub.fetch('https://fleethook.invalid/', { method: 'POST', body })
        if (answer.status !== 200) throw unavailable(`It answered with status ${answer.status}.`)
        // An object runs this very module.
        return (await answer.json()) as Reply
      } catch (error) {
        if (turn === tries || !isPassing(error)) throw error
      }
    }
  }

  /** Asks one object. Rejects with the `FleethookError` in its answer, or with the error that prevented an answer. */
  async #ask<Asked extends keyof Questions>(
    shard: number,
    env: unknown,
    question: Asked,
    about: Parameters<Questions[Asked]>[0],
  ): Promise<Awaited<ReturnType<Questions[Asked]>>> {
    const asked: Question<Asked> = { question, about, branch: this.#branch }
    const reply = await this.#send(shard, env, JSON.stringify(asked))
    if (!('error' in reply)) return reply.value as never
    const { code, message, hint } = reply.error
    throw new FleethookError(code, message, { hint })
  }

  /** Asks all objects, because neither an id nor a time says which one has a message. */
  #askAll<Asked extends keyof Questions>(
    question: Asked,
    about: Parameters<Questions[Asked]>[0],
    env: unknown = this.#options.bindings(),
  ): Promise<Awaited<ReturnType<Questions[Asked]>>[]> {
    return Promise.all(this.#everyShard.map((shard) => this.#ask(shard, env, question, about)))
  }

  async #total(
    question: 'replayDead' | 'discardDead',
    about: Parameters<Questions['replayDead']>[0],
    env?: unknown,
  ): Promise<number> {
    return (await this.#askAll(question, about, env)).reduce((sum, count) => sum + count, 0)
  }

  /** The messages of all objects. */
  async #list(...[what, which]: Parameters<Archive['list']>): Promise<readonly ListedMessage[]> {
    const isBefore = (a: ListedMessage, b: ListedMessage): boolean =>
      what === 'all' ? a.message.id > b.message.id : a.message.id < b.message.id
    return merged(await this.#askAll('list', { what, which }), which.limit, isBefore, bytesOfMessage)
  }

  #vehicles(): VehiclesElsewhere {
    return {
      get: (vin) => this.#ask(this.#shardOf(laneOf(vin)), this.#options.bindings(), 'vehicle', vin),
      list: async ({ after, limit }) => {
        const pages = this.#everyShard.map((shard) => this.#vehiclesOf(shard, after, limit))
        return merged(await Promise.all(pages), limit, (a, b) => a.vin < b.vin, bytesOfState)
      },
      // Asks all objects: an object that had the vehicle before `shards` was changed may still have a state of it.
      forget: async (vin) => (await this.#askAll('forgetVehicle', vin)).includes(true),
      stats: async () => {
        const all = await this.#askAll('countVehicles', undefined)
        const sum = (name: 'vehicles' | 'unwritten'): number => all.reduce((count, stats) => count + stats[name], 0)
        return { vehicles: sum('vehicles'), unwritten: sum('unwritten'), edges: all[0]?.edges ?? 0 }
      },
    }
  }

  /** The vehicles of an object, without vehicles that belong to another object since `shards` was changed. */
  async #vehiclesOf(shard: number, after: string | undefined, limit: number): Promise<SentVehicle[]> {
    const found: SentVehicle[] = []
    for (let last = after; ;) {
      const page = await this.#ask(shard, this.#options.bindings(), 'vehicles', { after: last, limit })
      found.push(...page.filter(({ vin }) => this.#shardOf(laneOf(vin)) === shard))
      last = page.at(-1)?.vin
      if (last === undefined || found.length >= limit || sizeOf(found, bytesOfState) >= pageBytes) return found
    }
  }
}

/** What all objects report, together. No vehicle is in two of them. */
function togetherOf(reports: readonly Failing[]): Failing {
  const handlers = new Map<string, FailingHandler>()
  for (const one of reports.flatMap((report) => report.handlers)) {
    const { handler, error } = one
    const known = handlers.get(handler)
    const since = new Date(one.since)
    handlers.set(handler, {
      handler,
      error,
      messages: one.messages + (known?.messages ?? 0),
      vehicles: one.vehicles + (known?.vehicles ?? 0),
      since: known !== undefined && known.since < since ? known.since : since,
    })
  }
  const sum = (of: 'messages' | 'vehicles'): number => reports.reduce((count, report) => count + report[of], 0)
  return {
    messages: sum('messages'),
    vehicles: sum('vehicles'),
    handlers: [...handlers.values()].toSorted((one, other) => other.messages - one.messages),
  }
}

const bytesOfState = ({ text }: SentVehicle): number => text.length

function sizeOf<Item>(items: readonly Item[], bytesOf: (item: Item) => number): number {
  return items.reduce((sum, item) => sum + bytesOf(item), 0)
}

/** One page of the pages of all objects. It ends where one of them ended by its bytes, because that object may have more before the rest. */
function merged<Item>(
  pages: readonly (readonly Item[])[],
  limit: number,
  isBefore: (one: Item, other: Item) => boolean,
  bytesOf: (item: Item) => number,
): readonly Item[] {
  const ends = pages.flatMap((page) => (sizeOf(page, bytesOf) < pageBytes ? [] : page.slice(-1)))
  return pages
    .flat()
    .filter((item) => !ends.some((end) => isBefore(end, item)))
    .toSorted((one, other) => (isBefore(one, other) ? -1 : 1))
    .slice(0, limit)
}

/** Whether the platform says that another try may succeed. The service sends once, so it is worth trying. */
function isPassing(error: unknown): boolean {
  return error instanceof Error && Reflect.get(error, 'retryable') === true && Reflect.get(error, 'overloaded') !== true
}

function bound(namespace: ObjectNamespace | undefined): ObjectNamespace {
  if (namespace !== undefined) return namespace
  // What to do: Add the binding that your function reads to the Wrangler configuration.
  throw unavailable('The option `objects` of durableObjectInbox returned nothing for this env.')
}

function unavailable(message: string): FleethookError {
  return new FleethookError('inbox_unavailable', message, {
    hint: 'Bind the class that inboxObject(receiver) makes in `durable_objects` of the Wrangler configuration.',
  })
}
