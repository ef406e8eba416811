import {
  durableObjectInbox,
  type DurableObjectInboxOptions,
  inboxObject,
  type InboxObjectClass,
  type ObjectNamespace,
} from '../../../adapters/inbox/durable-object.ts'
import { worker, type Worker } from '../../../adapters/workers.ts'
import { createReceiver, type ReceiverOptions } from '../../../src/index.ts'

export interface Bindings {
  readonly WEBHOOK_SECRET: string
  readonly FLEETHOOK_INBOX: ObjectNamespace
  readonly LOG: { fetch(url: string, request: { method: string; body: string }): Promise<unknown> }
}

export interface DurableSettings {
  readonly receiver?: Omit<ReceiverOptions<{ Bindings: Bindings }>, 'secret' | 'inbox'>
  readonly inbox?: Omit<DurableObjectInboxOptions<Bindings>, 'objects'>
  /** How long a handler takes before it writes down what it has handled. */
  readonly handlerMs?: number
  /** Vehicles whose messages fail until this attempt. */
  readonly failing?: Readonly<Record<string, number>>
}

/** A Worker whose handlers write down what they handle, and beside it what its dead letters and its counts are. */
export function durableWorker(settings: DurableSettings): {
  readonly FleethookInbox: InboxObjectClass
  readonly main: Worker<Bindings>
} {
  const receiver = createReceiver<{ Bindings: Bindings }>({
    ...settings.receiver,
    secret: (env) => env.WEBHOOK_SECRET,
    inbox: durableObjectInbox<Bindings>({ ...settings.inbox, objects: (env) => env.FLEETHOOK_INBOX }),
  }).on('*', async (event, { env, delivery }) => {
    const { vin = '', topic } = event
    if (settings.handlerMs !== undefined) await new Promise((resolve) => setTimeout(resolve, settings.handlerMs))
    if (delivery.attempt < (settings.failing?.[vin] ?? 0)) throw new Error(`not yet: ${delivery.attempt}`)
    const number = topic === 'data' ? event.data.BatteryLevel : topic
    const { id, attempt, redelivered, replayed } = delivery
    const body = JSON.stringify({ vin, number, delivery: id, attempt, redelivered, replayed })
    await env.LOG.fetch('http://log/', { method: 'POST', body })
  })
  const { fetch } = worker<Bindings>(receiver)
  return {
    FleethookInbox: inboxObject(receiver),
    main: {
      async fetch(request, env, context) {
        const { pathname, searchParams } = new URL(request.url)
        if (pathname === '/stats') return Response.json(receiver.stats())
        if (pathname === '/dead') {
          // Only to let `worker` see the bindings.
          await fetch(new Request('http://self/services/collector/health'), env, context)
          return Response.json(await receiver.deadLetters.list())
        }
        const id = searchParams.get('id') ?? ''
        if (pathname === '/replay') return Response.json(await receiver.deadLetters.replay(id, { env }))
        return fetch(request, env, context)
      },
    },
  }
}

/** It as the module of a Worker. */
export function durableSource(settings: DurableSettings): string {
  return `
    import { durableWorker } from './durable.ts'
    const made = durableWorker(${JSON.stringify(settings)})
    export const FleethookInbox = made.FleethookInbox
    export default made.main`
}
