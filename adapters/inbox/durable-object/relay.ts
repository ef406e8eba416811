import type { DeadLetters } from '../../../src/inbox/dead-letters.ts'
import { createLetters } from '../../../src/backend/letters.ts'
import type { Refusal } from '../../../src/http/answers.ts'
import type { InboxMessage } from '../../../src/inbox/inbox.ts'
import type { BackendParts } from '../../../src/backend/backend.ts'
import type { Relay } from '../../../src/backend/relay.ts'
import { askedFor } from './asked-for.ts'
import type { Objects } from './objects.ts'

/** Takes messages to the objects of their lanes. `bindings` are those of the last request, for who has no others. */
export function createObjectRelay(
  { shards, shardOf, ask }: Objects,
  { receipts }: BackendParts,
  bindings: () => unknown,
): Relay {
  const everyShard = Array.from({ length: shards }, (_, shard) => shard)

  /** Ids do not say where they were made, nor do times: all are asked. */
  async function total(asking: (shard: number) => Promise<number>): Promise<number> {
    const counts = await Promise.all(everyShard.map(asking))
    return counts.reduce((sum, count) => sum + count, 0)
  }

  const letters = createLetters({
    async deadLetters(which) {
      const lists = await Promise.all(everyShard.map((shard) => ask(shard, bindings(), 'deadLetters', which)))
      return lists
        .flat()
        .toSorted((a, b) => (a.id < b.id ? -1 : 1))
        .slice(0, which.limit)
    },
    async findDeadLetter(id) {
      const found = await Promise.all(everyShard.map((shard) => ask(shard, bindings(), 'findDeadLetter', id)))
      // JSON says nothing of what is undefined, so an object without it answers nothing.
      return found.find((letter) => letter !== undefined)
    },
    read: receipts.reread,
  })

  const deadLetters: DeadLetters = {
    list: letters.list,
    get: letters.get,
    replay: (which, { env = bindings() } = {}) => total((shard) => ask(shard, env, 'replay', askedFor(which))),
    discard: (which) => total((shard) => ask(shard, bindings(), 'discard', askedFor(which))),
  }

  return {
    durability: 'replicated',
    deadLetters,
    replay: (which, { env = bindings() } = {}) => total((shard) => ask(shard, env, 'replayHandled', askedFor(which))),

    async put(messages, env) {
      const byShard = new Map<number, InboxMessage[]>()
      for (const { event: _, ...message } of messages) {
        const shard = shardOf(message.lane)
        const group = byShard.get(shard)
        if (group === undefined) byShard.set(shard, [message])
        else group.push(message)
      }
      const answers = [...byShard].map(([shard, group]) => ask(shard, env, 'put', group))
      return (await Promise.all(answers)).find((refusal): refusal is Refusal => refusal !== undefined)
    },
  }
}
