import { FleethookError } from '../../../src/base/errors.ts'
import type { Refusal } from '../../../src/http/answers.ts'
import type { DeadLetter, InboxMessage, Selection } from '../../../src/inbox/inbox.ts'
import type { BackendParts } from '../../../src/backend/backend.ts'
import { type AskedFor, meant } from './asked-for.ts'
import type { InboxObject, InboxObjectClass, ObjectState } from './platform.ts'
import type { Keeping } from './room.ts'
import { createShard, type Shard } from './shard.ts'

/** What a Worker asks an object, and what the object answers. */
export interface Questions {
  put(messages: readonly InboxMessage[]): Promise<Refusal | undefined>
  deadLetters(which: Selection): Promise<readonly DeadLetter[]>
  findDeadLetter(id: string): Promise<DeadLetter | undefined>
  replay(which: AskedFor): Promise<number>
  replayHandled(which: AskedFor): Promise<number>
  discard(which: AskedFor): Promise<number>
}

/** An answer on its way to the Worker: a value, or the error that its caller is to see. */
export type Reply =
  | { readonly value?: unknown }
  | { readonly error: Pick<FleethookError, 'code' | 'message'> & { readonly hint?: string | undefined } }

/** The class that a binding finds: plain, because what the platform wants of it are two methods. */
export function createInboxObject(parts: BackendParts, keeping: Keeping): InboxObjectClass {
  return class FleethookInbox implements InboxObject {
    readonly #shard: Shard

    constructor({ storage }: ObjectState, env: unknown) {
      this.#shard = createShard({ parts, keeping, storage, env })
    }

    async fetch(request: Request): Promise<Response> {
      return Response.json(await reply(answering(this.#shard), request))
    }

    alarm(): Promise<void> {
      return this.#shard.alarm()
    }
  }
}

function answering({ engine, inbox, put, surroundings }: Shard): Questions {
  return {
    put,
    async deadLetters(which) {
      await engine.open()
      return inbox.deadLetters(which)
    },
    async findDeadLetter(id) {
      await engine.open()
      return inbox.findDeadLetter(id)
    },
    replay: (which) => engine.deadLetters.replay(which.id ?? meant(which), { env: surroundings.env }),
    replayHandled(which) {
      const { from = new Date(0), to = new Date(8.64e15), ...others } = meant(which)
      return engine.replay({ ...others, from, to }, { env: surroundings.env })
    },
    discard: (which) => engine.deadLetters.discard(which.id ?? meant(which)),
  }
}

/** Only who has the binding can ask, and that is the Worker whose module this is. */
async function reply(questions: Questions, request: Request): Promise<Reply> {
  const { question, about }: { question: keyof Questions; about: never } = await request.json()
  try {
    return { value: await questions[question](about) }
  } catch (error) {
    if (!(error instanceof FleethookError)) throw error
    const { code, message, hint } = error
    return { error: { code, message, hint } }
  }
}
