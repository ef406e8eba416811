/**
 * A durable inbox on Cloudflare Workers: Durable Objects that store, acknowledge, and run the handlers.
 *
 * @module
 */
import { FleethookError } from '../../src/base/errors.ts'
import type { Drainable } from '../../src/hosting/drainable.ts'
import { refuseConflation } from '../../src/inbox/refuse-conflation.ts'
import { type AttachableInbox, isAttachable } from '../../src/backend/relay-inbox.ts'
import type { BackendParts } from '../../src/backend/backend.ts'
import type { RelayInbox } from '../../src/inbox/inbox.ts'
import { createRelayBackend } from '../../src/backend/relay.ts'
import { createInboxObject } from './durable-object/object.ts'
import { createObjects } from './durable-object/objects.ts'
import {
  type DurableObjectInboxOptions,
  type DurableObjectSettings,
  readObjectOptions,
} from './durable-object/options.ts'
import type { InboxObjectClass } from './durable-object/platform.ts'
import { createObjectRelay } from './durable-object/relay.ts'

export type { DurableObjectInboxOptions } from './durable-object/options.ts'
export type { Retention } from '../../src/inbox/retention.ts'
export type {
  InboxObject,
  InboxObjectClass,
  ObjectNamespace,
  ObjectSql,
  ObjectState,
  ObjectStorage,
  ObjectStub,
  SqlValue,
} from './durable-object/platform.ts'

interface Made {
  readonly keeping: DurableObjectSettings<never>['keeping']
  parts: BackendParts | undefined
}

const made = new WeakMap<RelayInbox, Made>()

/**
 * Keeps messages in Durable Objects with SQLite storage, `shards` of them: each vehicle has its place in one. A 2xx is sent
 * once the message is on several machines; its handlers run inside the object, in order of arrival per VIN, and again after
 * whatever ends it.
 *
 * The class of the objects is made by {@link inboxObject}; `limits` and `concurrency` of the receiver hold for each object.
 * A body with messages of several vehicles is kept whole by each object or not at all.
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import { durableObjectInbox, inboxObject, type ObjectNamespace } from 'fleethook/inbox/durable-object'
 * import { worker } from 'fleethook/workers'
 *
 * interface Bindings { WEBHOOK_SECRET: string; FLEETHOOK_INBOX: ObjectNamespace }
 *
 * const receiver = createReceiver<{ Bindings: Bindings }>({
 *   secret: (env) => env.WEBHOOK_SECRET,
 *   inbox: durableObjectInbox<Bindings>({ objects: (env) => env.FLEETHOOK_INBOX }),
 * }).on('data', (event) => console.log(event.vin))
 *
 * export const FleethookInbox = inboxObject(receiver)
 * export default worker(receiver)
 * ```
 */
export function durableObjectInbox<Bindings = never>(options: DurableObjectInboxOptions<Bindings>): RelayInbox {
  const { objects, shards, keeping } = readObjectOptions(options)
  let bindings: unknown
  const kept: Made = { keeping, parts: undefined }
  const inbox: AttachableInbox = {
    kind: 'relay',
    bind(env) {
      bindings = env
    },
    attach(parts) {
      if (kept.parts !== undefined) throw usedTwice()
      refuseConflation(parts.settings)
      kept.parts = parts
      const relay = createObjectRelay(createObjects(objects, shards), parts, () => bindings)
      return createRelayBackend(relay, parts)
    },
  }
  made.set(inbox, kept)
  return inbox
}

/**
 * The class of the objects that keep a receiver's messages and run its handlers. Export it under the name that
 * `durable_objects` and `new_sqlite_classes` of the Wrangler configuration have.
 *
 * Throws `option_invalid` for a receiver whose inbox is not {@link durableObjectInbox}.
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import { durableObjectInbox, inboxObject, type ObjectNamespace } from 'fleethook/inbox/durable-object'
 *
 * const inbox = durableObjectInbox({ objects: (env: { INBOX: ObjectNamespace }) => env.INBOX })
 * const receiver = createReceiver({ secret: 'a-long-random-value', inbox })
 *
 * export const FleethookInbox = inboxObject(receiver)
 * ```
 */
export function inboxObject({ inbox }: Pick<Drainable, 'inbox'>): InboxObjectClass {
  const kept = isAttachable(inbox) ? made.get(inbox) : undefined
  const parts = kept?.parts
  if (kept === undefined || parts === undefined) {
    throw new FleethookError(
      'option_invalid',
      'inboxObject was given a receiver that keeps its messages somewhere else.',
      {
        hint: 'Give createReceiver the option inbox: durableObjectInbox({ objects: (env) => env.FLEETHOOK_INBOX }).',
      },
    )
  }
  const { pendingMessages = 50_000, pendingBytes = kept.keeping.maxBytes } = parts.settings.limits
  return createInboxObject(parts, { ...kept.keeping, pendingMessages, pendingBytes })
}

function usedTwice(): FleethookError {
  return new FleethookError('option_invalid', 'One durableObjectInbox was given to two receivers.', {
    hint: 'Make one for each receiver, with a binding of its own.',
  })
}
