/* A Worker with a receiver of `test/vehicles/facts-receiver.ts`. */
import {
  durableObjectInbox,
  inboxObject,
  type InboxObjectClass,
  type ObjectNamespace,
} from '../../../adapters/inbox/durable-object.ts'
import { worker, type Worker } from '../../../adapters/workers.ts'
import { factsReceiver, type FactsSettings, type Question } from '../../vehicles/facts-receiver.ts'
import type { Bindings } from './durable.ts'

export function factsWorker(settings: FactsSettings): {
  readonly FleethookInbox: InboxObjectClass
  readonly main: Worker<Bindings>
} {
  const inbox = durableObjectInbox({ objects: (env: Bindings): ObjectNamespace => env.FLEETHOOK_INBOX })
  const receiver = factsReceiver(settings, { secret: false, inbox }, (noted, env) =>
    (env as Bindings).LOG.fetch('http://log/', { method: 'POST', body: JSON.stringify(noted) }),
  )
  const { fetch } = worker<Bindings>(receiver)
  return {
    FleethookInbox: inboxObject(receiver),
    main: {
      async fetch(request, env, context) {
        if (new URL(request.url).pathname !== '/ask') return fetch(request, env, context)
        // Only to let `worker` see the bindings.
        await fetch(new Request('http://self/services/collector/health'), env, context)
        const question: Question = await request.json()
        return receiver.ask(question, env).then(
          (answer) => Response.json(answer ?? null),
          (error: unknown) => Response.json(String(error), { status: 500 }),
        )
      },
    },
  }
}

/** The Worker as a module. */
export const factsSource = (settings: FactsSettings): string => `
  import { factsWorker } from './facts.ts'
  const made = factsWorker(${JSON.stringify(settings)})
  export const FleethookInbox = made.FleethookInbox
  export default made.main`
