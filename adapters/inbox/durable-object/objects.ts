import { createDeadLetterReader, createMessages } from '../../../src/backend/replay.ts'
import type { Relay } from '../../../src/backend/relay.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import type { Refusal } from '../../../src/http/answers.ts'
import type { DeadLetters } from '../../../src/inbox/dead-letters.ts'
import type { InboxMessage, ListedMessage, Listing } from '../../../src/inbox/inbox.ts'
import type { Receipts } from '../../../src/inbox/receipts.ts'
import { fnv1a } from '../../../src/wire/identity.ts'
import type { Questions, Reply } from './object.ts'
import type { ObjectNamespace } from './platform.ts'

/** The number of times that a Worker asks an object that was just moved or restarted. */
const tries = 3

interface ObjectRelayOptions {
  readonly objects: (env: never) => ObjectNamespace
  /** The number of objects that share the vehicles. */
  readonly shards: number
  readonly receipts: Receipts
  /** The bindings of the last request, for calls that bring none. */
  readonly bindings: () => unknown
}

/** Takes messages to the objects of their lanes, and asks the objects for dead letters and replays. */
export function createObjectRelay({ objects, shards, receipts, bindings }: ObjectRelayOptions): Relay {
  const everyShard = Array.from({ length: shards }, (_, shard) => shard)

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

  /** Asks one object. Rejects with the `FleethookError` that it answers with, or with what came between. */
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

  /** Neither an id nor a time says which object has a message: all of them are asked. */
  async function total(asking: (shard: number) => Promise<number>): Promise<number> {
    const counts = await Promise.all(everyShard.map(asking))
    return counts.reduce((sum, count) => sum + count, 0)
  }

  const reader = createDeadLetterReader({
    async deadLetters(which) {
      const lists = await Promise.all(everyShard.map((shard) => ask(shard, bindings(), 'deadLetters', which)))
      return lists
        .flat()
        .toSorted((a, b) => (a.id < b.id ? -1 : 1))
        .slice(0, which.limit)
    },
    async findDeadLetter(id) {
      const found = await Promise.all(everyShard.map((shard) => ask(shard, bindings(), 'findDeadLetter', id)))
      return found.find((letter) => letter !== undefined)
    },
    read: receipts.reread,
  })

  const lists = {
    async messages(which: Listing): Promise<readonly ListedMessage[]> {
      const found = await Promise.all(everyShard.map((shard) => ask(shard, bindings(), 'messages', which)))
      return found
        .flat()
        .toSorted((a, b) => (a.message.id > b.message.id ? -1 : 1))
        .slice(0, which.limit)
    },
  }

  const deadLetters: DeadLetters = {
    list: reader.list,
    get: reader.get,
    replay: (which, { env = bindings() } = {}) => total((shard) => ask(shard, env, 'replayDead', which)),
    discard: (which) => total((shard) => ask(shard, bindings(), 'discardDead', which)),
  }

  return {
    durability: 'replicated',
    deadLetters,
    messages: createMessages(lists, receipts.reread),
    replay: (which, { env = bindings() } = {}) => total((shard) => ask(shard, env, 'replay', which)),

    async put(messages, env) {
      const byShard = new Map<number, InboxMessage[]>()
      for (const { event: _, ...message } of messages) {
        // Always the same object for a lane, as long as the number of shards stays.
        const shard = Number.parseInt(fnv1a(message.lane).slice(-8), 16) % shards
        const group = byShard.get(shard)
        if (group === undefined) byShard.set(shard, [message])
        else group.push(message)
      }
      const answers = [...byShard].map(([shard, group]) => ask(shard, env, 'put', group))
      return (await Promise.all(answers)).find((refusal): refusal is Refusal => refusal !== undefined)
    },
  }
}

/** Whether the platform says that another try may succeed. The service sends once, so a try is worth it. */
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
