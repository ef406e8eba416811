import type { Format } from '../events/event.ts'
import { detachedContext, type ExecutionContext } from '../hosting/execution-context.ts'
import { type Encodable, encode } from '../wire/encode.ts'
import { authorizationOf } from './post.ts'

/** What messages can be delivered to: a receiver, or a Hono app that mounts one. */
export interface Deliverable {
  readonly fetch: (request: Request, env?: never, context?: ExecutionContext) => Response | Promise<Response>
}

/** How to deliver a message. */
export interface DeliverOptions {
  /** The format to write it in. Default `'service'`; test all three, for the webhook can be set to any. */
  readonly as?: Format
  /** What is set as `auth` of the webhook. Without it no `Authorization` header is sent. */
  readonly secret?: string
  /** Where the receiver is mounted. Default `/`. */
  readonly path?: string
  /** The runtime's bindings. */
  readonly env?: object
}

/** What became of a message. */
export interface Delivered {
  readonly status: number
  /** The answer, parsed. */
  readonly body: { readonly text: string; readonly code: number; readonly error?: string; readonly hint?: string }
  /** Resolves when every handler of the message is done or has given it up; at once when it was refused. */
  readonly settled: Promise<void>
}

/**
 * Posts a message to a receiver as the service would, without a server.
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import { deliver, message } from 'fleethook/testing'
 *
 * const receiver = createReceiver({ secret: 'a-long-random-value' }).on('state', (event) => console.log(event.state))
 * const { status, settled } = await deliver(receiver, message.state('asleep'), { as: 'service', secret: 'a-long-random-value' })
 * await settled
 * console.log(status) // 200
 * ```
 *
 * Specification: "Webhook delivery", "Authentication of outgoing webhook messages".
 */
export async function deliver(
  receiver: Deliverable,
  message: Encodable,
  { as = 'service', secret, path = '/', env = {} }: DeliverOptions = {},
): Promise<Delivered> {
  const handled: Promise<void>[] = []
  const context: ExecutionContext = { ...detachedContext, watch: (settled) => void handled.push(settled) }
  const request = new Request(new URL(path, 'http://receiver.test'), {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(secret === undefined ? {} : { authorization: authorizationOf(secret, as) }),
    },
    body: JSON.stringify(encode(message, as)),
  })
  const answer = await receiver.fetch(request, env as never, context)
  return {
    status: answer.status,
    body: await answer.json(),
    settled: Promise.all(handled).then(() => {}),
  }
}
