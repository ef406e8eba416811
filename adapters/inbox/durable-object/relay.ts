import { deadMessage } from '../../../src/dispatch/dead-letters.ts'
import type { Refusal } from '../../../src/http/answers.ts'
import type { InboxMessage } from '../../../src/inbox/inbox.ts'
import type { RelayParts } from '../../../src/inbox/relay.ts'
import type { Relay } from '../../../src/inbox/relay-taker.ts'
import type { DeadLetters } from '../../../src/receiver-interface.ts'
import type { Objects } from './objects.ts'

/** Takes messages to the objects of their lanes. `bindings` are those of the last request, for who has no others. */
export function createObjectRelay(
  { shards, shardOf, ask }: Objects,
  { receipts }: RelayParts,
  bindings: () => unknown,
): Relay {
  const everyShard = Array.from({ length: shards }, (_, shard) => shard)

  async function whichever(question: 'replay' | 'discard', id: string, env: unknown): Promise<boolean> {
    // Ids do not say where they were made.
    const found = await Promise.all(everyShard.map((shard) => ask(shard, env, question, id)))
    return found.includes(true)
  }

  const deadLetters: DeadLetters = {
    async list({ limit = 100 } = {}) {
      const lists = await Promise.all(everyShard.map((shard) => ask(shard, bindings(), 'deadLetters', { limit })))
      const oldest = lists.flat().toSorted((a, b) => (a.id < b.id ? -1 : 1))
      return oldest.slice(0, limit).map((letter) => deadMessage(letter, receipts.reread))
    },
    replay: (id, { env = bindings() } = {}) => whichever('replay', id, env),
    discard: (id) => whichever('discard', id, bindings()),
  }

  return {
    durability: 'replicated',
    deadLetters,

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
