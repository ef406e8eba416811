/**
 * A durable inbox on Cloudflare Workers: Durable Objects that store, acknowledge, and run the handlers.
 *
 * @module
 */
import { FleethookError } from '../../src/base/errors.ts'
import { aFunction, checkOptions, defined, required, type Rules, wholeNumber } from '../../src/base/options.ts'
import type { Drainable } from '../../src/hosting/drainable.ts'
import type { InboxFactory, Retention } from '../../src/inbox/inbox.ts'
import { givenOnce } from './forwarding.ts'
import { hostedBy } from '../../src/receiver/hosted.ts'
import { createInboxObject } from './durable-object/object.ts'
import { ObjectsInbox } from './durable-object/objects.ts'
import type { ObjectOptions } from './durable-object/places.ts'
import type { InboxObjectClass, ObjectNamespace } from './durable-object/platform.ts'

export type { Retention } from '../../src/inbox/inbox.ts'
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

/** What {@link durableObjectInbox} takes. Only `objects` is required. */
export interface DurableObjectInboxOptions<Bindings> {
  /** The binding of the objects: `(env) => env.FLEETHOOK_INBOX`. */
  readonly objects: (env: Bindings) => ObjectNamespace
  /**
   * The number of objects that share the vehicles. Default 4: one object takes some hundred messages a second. Change it only
   * while no messages wait: a vehicle can move to another object, which knows neither the messages that wait in the old object
   * nor the vehicle's state.
   */
  readonly shards?: number
  /**
   * The size of all messages of one object, in bytes. When it is used up, the object
   * is full. Default 1 GiB; the platform allows 10 GB.
   */
  readonly maxBytes?: number
  /** What an object keeps for replays. Default: dead letters for 30 days and up to 64 MiB. */
  readonly retention?: { readonly dead?: Retention }
}

const mebibyte = 1_048_576
const dayMs = 86_400_000

const rules: Rules<DurableObjectInboxOptions<never>> = {
  objects: required(aFunction, 'Give (env) => env.FLEETHOOK_INBOX, with the name of your binding.'),
  shards: wholeNumber(1),
  maxBytes: wholeNumber(1),
  retention: { dead: { forMs: wholeNumber(0), maxBytes: wholeNumber(0) } },
}

/** What each inbox keeps in its objects. */
const made = new WeakMap<object, Omit<ObjectOptions, 'kept'>>()

/**
 * Keeps messages in Durable Objects with SQLite storage. `shards` objects share the vehicles, and each vehicle belongs to one
 * of them. A 2xx is sent once the message is on several machines. Its handlers run inside the object, in order of arrival per
 * VIN, and run again if the object ends before they are done.
 *
 * With the part `vehicles`, an object also keeps the states of its vehicles. Each message writes one more row then.
 *
 * {@link inboxObject} makes the class of the objects. `limits` and `concurrency` of the receiver apply to each object. Each
 * object keeps all of its messages of a body or none of them.
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import { durableObjectInbox, inboxObject, type ObjectNamespace } from 'fleethook/inbox/durable-object'
 * import { worker } from 'fleethook/workers'
 *
 * interface Bindings { WEBHOOK_SECRET: string; FLEETHOOK_INBOX: ObjectNamespace }
 *
 * const receiver = createReceiver({
 *   secret: (env: Bindings) => env.WEBHOOK_SECRET,
 *   inbox: durableObjectInbox({ objects: (env: Bindings) => env.FLEETHOOK_INBOX }),
 * }).on('data', (event) => console.log(event.vin))
 *
 * export const FleethookInbox = inboxObject(receiver)
 * export default worker(receiver)
 * ```
 */
export function durableObjectInbox<Bindings = never>(options: DurableObjectInboxOptions<Bindings>): InboxFactory {
  checkOptions('durableObjectInbox', options, rules)
  const { objects, shards = 4, maxBytes = 1024 * mebibyte, retention = {} } = options
  const dead = { forMs: 30 * dayMs, maxBytes: 64 * mebibyte, ...defined(retention.dead) }
  let bindings: unknown
  const useEnv = (env: unknown): void => {
    bindings = env
  }
  const give = givenOnce('durableObjectInbox', 'binding')
  const create: InboxFactory = (settings) => {
    give()
    return new ObjectsInbox(settings, { objects, shards, bindings: () => bindings })
  }
  const inbox = Object.assign(create, { useEnv })
  made.set(inbox, { maxBytes, dead })
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
export function inboxObject(receiver: Drainable): InboxObjectClass {
  const keeping = made.get(receiver.inbox)
  const parts = hostedBy(receiver.inbox)?.intake.parts
  if (keeping === undefined || parts === undefined) {
    throw new FleethookError(
      'option_invalid',
      // What to do: Give it `inbox: durableObjectInbox(…)`.
      'inboxObject was given a receiver that keeps its messages somewhere else.',
      { hint: 'Give createReceiver the option inbox: durableObjectInbox({ objects: (env) => env.FLEETHOOK_INBOX }).' },
    )
  }
  const { useEnv = () => {} } = parts.settings.inbox
  return createInboxObject(parts, keeping, useEnv)
}
