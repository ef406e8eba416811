import { bytesOfMessage, firstPage, pageBytes, pagesOf } from '../../../src/inbox/pages.ts'
import { gapOf } from '../../../src/events/gap.ts'
import { createDeadLetterReader, createMessages } from '../../../src/backend/replay.ts'
import type { Relay } from '../../../src/backend/relay.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import type { Refusal } from '../../../src/http/answers.ts'
import type { DeadLetters, Forgotten } from '../../../src/inbox/dead-letters.ts'
import type { FieldCatalogue } from '../../../src/events/fields.ts'
import { togetherOf } from '../../../src/inbox/failing.ts'
import type { Inbox, InboxMessage } from '../../../src/inbox/inbox.ts'
import { laneOf, type Receipts } from '../../../src/inbox/receipts.ts'
import type { KeptVehicles } from '../../../src/parts/vehicles.ts'
import type { AnyVehicleView } from '../../../src/vehicles/edge.ts'
import type { Vehicles } from '../../../src/vehicles/vehicles.ts'
import { fnv1a } from '../../../src/wire/identity.ts'
import type { Settings } from '../../../src/receiver/options.ts'
import type { Questions, Reply } from './object.ts'
import type { ObjectNamespace } from './platform.ts'
import type { SentVehicle } from './vehicles.ts'

/** The most times that a Worker calls an object that was just moved or restarted. */
const tries = 3

interface ObjectRelayOptions {
  readonly objects: (env: never) => ObjectNamespace
  readonly shards: number
  readonly receipts: Receipts
  readonly settings: Pick<Settings, 'clock'>
  /** Reads a state that an object sent. `undefined`: the receiver has no part `vehicles`. */
  readonly viewOf: KeptVehicles['viewOf'] | undefined
  /** The bindings of the last request, for calls that bring none. */
  readonly bindings: () => unknown
}

/** Forwards messages to the objects of their lanes, and calls the objects for dead letters and replays. */
export function createObjectRelay(options: ObjectRelayOptions): Relay {
  const { objects, shards, receipts, settings, viewOf, bindings } = options
  const everyShard = Array.from({ length: shards }, (_, shard) => shard)
  // A lane always has the same object, as long as the number of shards stays the same.
  const shardOf = (lane: string): number => Number.parseInt(fnv1a(lane).slice(-8), 16) % shards

  async function send(shard: number, env: unknown, body: string): Promise<Reply> {
    const namespace = bound(objects(env as never))
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

  /** Calls one object. Rejects with the `FleethookError` in its answer, or with the error that prevented an answer. */
  async function ask<Question extends keyof Questions>(
    shard: number,
    env: unknown,
    question: Question,
    about: Parameters<Questions[Question]>[0],
  ): Promise<Awaited<ReturnType<Questions[Question]>>> {
    const reply = await send(shard, env, JSON.stringify({ question, about }))
    if (!('error' in reply)) return reply.value as never
    const { code, message, hint } = reply.error
    throw new FleethookError(code, message, { hint })
  }

  /** Calls all objects, because neither an id nor a time says which one has a message. */
  const askAll = <Question extends keyof Questions>(
    question: Question,
    about: Parameters<Questions[Question]>[0],
    env: unknown = bindings(),
  ): Promise<Awaited<ReturnType<Questions[Question]>>[]> =>
    Promise.all(everyShard.map((shard) => ask(shard, env, question, about)))

  async function total(...asked: Parameters<typeof askAll<'replayDead' | 'discardDead'>>): Promise<number> {
    return (await askAll(...asked)).reduce((sum, count) => sum + count, 0)
  }

  const everyObject: Required<Pick<Inbox, 'deadLetters' | 'findDeadLetter' | 'messages'>> = {
    async deadLetters(which) {
      return merged(await askAll('deadLetters', which), which.limit, (a, b) => a.id < b.id, bytesOfMessage)
    },
    async findDeadLetter(id) {
      return (await askAll('findDeadLetter', id)).find((letter) => letter !== undefined)
    },
    async messages(which) {
      return merged(await askAll('messages', which), which.limit, (a, b) => a.message.id > b.message.id, bytesOfMessage)
    },
  }
  const reader = createDeadLetterReader(everyObject, receipts.reread)

  const deadLetters: DeadLetters = {
    list: reader.list,
    get: reader.get,
    replay: (which, { env } = {}) => total('replayDead', which, env),
    discard: (which) => total('discardDead', which),
  }

  /** The vehicles of an object, without those that belong to another object since `shards` was changed. */
  async function vehiclesOf(shard: number, after: string | undefined, limit: number): Promise<SentVehicle[]> {
    const found: SentVehicle[] = []
    for (let last = after; ;) {
      const page = await ask(shard, bindings(), 'vehicles', { after: last, limit })
      found.push(...page.filter(({ vin }) => shardOf(laneOf(vin)) === shard))
      last = page.at(-1)?.vin
      if (last === undefined || found.length >= limit || sizeOf(found, bytesOfState) >= pageBytes) return found
    }
  }

  function vehiclesFrom(read: KeptVehicles['viewOf']): Vehicles<FieldCatalogue> {
    const view = ({ seenMs, gapTo, ...row }: SentVehicle): AnyVehicleView =>
      read({ ...row, seenMs: seenMs ?? -Infinity }, settings.clock.now(), gapTo)
    return {
      async get(vin) {
        const report = await ask(shardOf(laneOf(vin)), bindings(), 'vehicle', vin)
        return report && view(report)
      },
      async *list({ after } = {}) {
        const find = async (last: SentVehicle | undefined, limit: number): Promise<readonly SentVehicle[]> =>
          merged(
            await Promise.all(everyShard.map((shard) => vehiclesOf(shard, last?.vin ?? after, limit))),
            limit,
            (a, b) => a.vin < b.vin,
            bytesOfState,
          )
        for await (const page of pagesOf(find, firstPage)) yield* page.map(view)
      },
      // Calls all objects: one that had the vehicle before `shards` was changed may still have a state of it.
      forget: async (vin) => (await askAll('forgetVehicle', vin)).includes(true),
      async stats() {
        const all = await askAll('countVehicles', undefined)
        const sum = (name: 'vehicles' | 'unwritten'): number => all.reduce((count, stats) => count + stats[name], 0)
        return { vehicles: sum('vehicles'), unwritten: sum('unwritten'), edges: all[0]?.edges ?? 0 }
      },
    }
  }

  return {
    durability: 'replicated',
    ...(viewOf === undefined ? {} : { vehicles: vehiclesFrom(viewOf) }),
    deadLetters,
    messages: createMessages(everyObject, receipts.reread),
    // Objects keep no handled messages.
    replay: async () => 0,
    failing: async () => togetherOf(await askAll('failing', undefined)),
    // All objects: one that had the vehicle before `shards` was changed may still have something of it.
    async forget(vin, dryRun) {
      const all = await askAll('forget', { vin, dryRun })
      const sum = (name: keyof Forgotten): number => all.reduce((count, erased) => count + erased[name], 0)
      return { messages: sum('messages'), waiting: sum('waiting'), deadLetters: sum('deadLetters') }
    },

    async put(messages, env, gaps = []) {
      // The event of a gap of all vehicles goes to one object, but the states in the others become uncertain, too.
      const ofAll =
        viewOf === undefined
          ? []
          : messages.flatMap(({ event }) => (event?.topic === 'gap' && event.vin === undefined ? [gapOf(event)] : []))
      if (ofAll.length > 0) await askAll('noteGaps', ofAll, env)
      const stored = messages.map(({ event: _, ...message }): InboxMessage => message)
      const byShard = Map.groupBy(stored, ({ lane }) => shardOf(lane))
      const answers = [...byShard].map(async ([shard, group]) => {
        const lanes = new Set(group.map(({ lane }) => lane))
        const concerned = gaps.filter(({ vin }) => vin === undefined || lanes.has(laneOf(vin)))
        // Storing a message without marking the gap is better than not storing it.
        if (concerned.length > 0) await ask(shard, env, 'noteGaps', concerned).catch(() => {})
        return ask(shard, env, 'put', group)
      })
      return (await Promise.all(answers)).find((refusal): refusal is Refusal => refusal !== undefined)
    },
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
  throw unavailable('The option `objects` of durableObjectInbox returned nothing for this env.')
}

function unavailable(message: string): FleethookError {
  return new FleethookError('inbox_unavailable', message, {
    hint: 'Bind the class that inboxObject(receiver) makes in `durable_objects` of the Wrangler configuration.',
  })
}
