import { type ErrorCode, FleethookError } from '../../../src/base/errors.ts'
import { fnv1a } from '../../../src/wire/identity.ts'
import type { Questions, Reply } from './object.ts'
import type { ObjectNamespace } from './platform.ts'

/** The objects that keep a receiver's messages, as a Worker sees them. */
export interface Objects {
  /** How many there are. */
  readonly shards: number
  /** Which of them keeps a lane: always the same, as long as there are as many. */
  shardOf(lane: string): number
  /** Asks one of them. Rejects with the `FleethookError` it answers with, or with what came between. */
  ask<Question extends keyof Questions>(
    shard: number,
    env: unknown,
    question: Question,
    about: Parameters<Questions[Question]>[0],
  ): Promise<Awaited<ReturnType<Questions[Question]>>>
}

/** How often an object is asked that was just being moved or restarted. */
const tries = 3

export function createObjects(objects: (env: never) => ObjectNamespace, shards: number): Objects {
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

  return {
    shards,

    shardOf: (lane) => Number.parseInt(fnv1a(lane).slice(-8), 16) % shards,

    async ask(shard, env, question, about) {
      const reply = await send(shard, env, JSON.stringify({ question, about }))
      if ('error' in reply) throw errorOf(reply.error)
      return reply.value as never
    },
  }
}

/** What the platform says of an error that another try may not meet. The service sends once, so it is worth one. */
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

function errorOf({ code, message, hint }: { code: ErrorCode; message: string; hint?: string | undefined }): Error {
  const text = hint !== undefined && message.endsWith(` ${hint}`) ? message.slice(0, -hint.length - 1) : message
  return new FleethookError(code, text, hint === undefined ? {} : { hint })
}
