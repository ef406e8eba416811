import type { Format } from '../events/event.ts'
import { detachedContext, type ExecutionContext } from '../hosting/execution-context.ts'
import { authorization, type Encodable, encode } from '../wire/encode.ts'

/** A receiver, or a Hono app that mounts one. */
export interface Deliverable {
  readonly fetch: (request: Request, env?: never, context?: ExecutionContext) => Response | Promise<Response>
}

/** Options of {@link deliver}. */
export interface DeliverOptions {
  /** The format of the message. Default `'service'`. Test all three, because a webhook can be set to any of them. */
  readonly as?: Format
  /** The value that is set as `auth` of the webhook. Default: no `Authorization` header is sent. */
  readonly secret?: string
  /** The path at which the receiver is mounted. Default `/`. */
  readonly path?: string
  /** The runtime's bindings, which handlers get as `context.env`. Default: none. */
  readonly env?: object
}

/** The answer to a delivered message. */
export interface Delivered {
  readonly status: number
  /** The body of the answer, parsed. */
  readonly body: { readonly text: string; readonly code: number; readonly error?: string; readonly hint?: string }
  /** Resolves when every handler of the message, on branches too, has succeeded or given up. Resolves at once when the message was refused. */
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
      ...(secret === undefined ? {} : { authorization: authorization(secret, as) }),
    },
    body: JSON.stringify(encode(message, as)),
  })
  const answer = await receiver.fetch(request, env as never, context)
  return { status: answer.status, body: await answer.json(), settled: allOf(handled) }
}

/** A branch adds its own when it has the message, which is before the receiver is done with it. */
async function allOf(handled: readonly Promise<void>[]): Promise<void> {
  for (const each of handled) await each
}
