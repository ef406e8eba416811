/**
 * Forwards messages to another server, as the service posts them.
 *
 * @module
 */
import { readWithin } from './base/read-within.ts'
import { answerLimits, type Forwarding, forwardingWith, type ForwardOptions, type Post } from './branch/posting.ts'

export type { Forwarding, ForwardOptions } from './branch/posting.ts'

/**
 * A handler that posts each message to another server, in its own format, so that whatever reads the service's webhook reads this: a second
 * fleethook, a script, the queue of another team. It belongs on a branch: elsewhere the next messages of a vehicle wait until the server has this one.
 *
 * Messages come in order per vehicle and at least once, through crashes of this process and of the other server. The header `fleethook-delivery` is
 * the same each time, so the server can drop what it has. An answer of 2xx ends it. After 408, 425, 429, 5xx, no answer in time or a lost connection
 * it is tried again, not before `Retry-After`. So it is after any other answer, because a rotated secret or a proxy without its server refuses
 * everything: only a message that is refused again while messages of other vehicles are taken is a dead letter. That goes on for as long as the inbox
 * of the branch has room, or for `forMs`. Redirects are not followed: the secret is for `to` only. Of `to`, the log and errors show the host, because
 * a path can be a secret. Answers are never logged. Gaps are not posted.
 *
 * Throws `option_invalid` for a wrong option.
 *
 * Specification: "Webhook delivery", "Authentication of outgoing webhook messages".
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import { branch } from 'fleethook/branch'
 * import { forward } from 'fleethook/forward'
 * import { sqliteInbox } from 'fleethook/inbox/sqlite'
 *
 * const receiver = createReceiver({ secret: process.env.WEBHOOK_SECRET, inbox: sqliteInbox({ path: 'data/inbox.db' }) })
 *
 * branch(receiver, { name: 'staging' }).on(
 *   '*',
 *   { vins: ['0FLEETV14T0000004'] },
 *   forward({ to: 'https://staging.example.com/telemetry', auth: process.env.STAGING_AUTH }),
 * )
 * ```
 */
export function forward(options: ForwardOptions): Forwarding {
  return forwardingWith(post, options)
}

const post: Post = async (to, request) => {
  const answer = await fetch(to, { method: 'POST', redirect: 'manual', ...request })
  // The status has come, and that is the answer.
  await readWithin(answer, answerLimits).catch(() => {})
  return { status: answer.status, retryAfter: answer.headers.get('retry-after') }
}
