import { queueInbox, type QueueBinding } from '../../../adapters/inbox/queue.ts'
import { worker, type Worker } from '../../../adapters/workers.ts'
import { type Bindings, type DurableSettings, receiverOf } from './durable.ts'

interface Queued extends Bindings {
  readonly FLEETHOOK_QUEUE: QueueBinding
}

/** The handlers of `durable.ts` with a queue. */
export function queuedWorker(settings: DurableSettings): Worker<Queued> {
  const inbox = queueInbox<Queued>({ queue: (env) => env.FLEETHOOK_QUEUE })
  return worker(receiverOf({ ...settings, receiver: { order: 'none', ...settings.receiver } }, inbox))
}

/** The module of a Worker, which also records what arrives at its dead letter queue. */
export function queuedSource(settings: DurableSettings): string {
  return `
    import { queuedWorker } from './queued.ts'
    const { fetch, queue } = queuedWorker(${JSON.stringify(settings)})
    const write = (env, entry) => env.LOG.fetch('http://log/', { method: 'POST', body: JSON.stringify(entry) })
    export class FleethookInbox {}
    export default {
      fetch,
      async queue(batch, env) {
        if (batch.queue !== 'dead') return queue(batch, env)
        for (const { body } of batch.messages) await write(env, { vin: body.lane, number: 'dead' })
      },
    }`
}
