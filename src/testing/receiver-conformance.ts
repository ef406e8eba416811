import { answerChecks } from './answer-checks.ts'
import { eventChecks } from './event-checks.ts'
import type { Conformance } from './inbox-conformance.ts'

/** A receiver that runs somewhere. */
export interface ReceiverUnderTest {
  /** Where it takes messages, for instance `http://localhost:3000/telemetry`. */
  readonly url: string
  /** What is set as `auth` of the webhook; without a scheme word. */
  readonly secret: string
  /** `limits.bodyBytes` of the receiver, when it is not the default. */
  readonly bodyBytes?: number
  /**
   * The events that its handlers were given so far, as JSON, in the order in which the handlers were done. Where it can be
   * asked, what becomes of messages is checked as well.
   */
  readonly events?: () => Promise<readonly HandledEvent[]>
  /**
   * VINs for whose messages the receiver's handlers take some hundred milliseconds, waiting or computing: the answer must not
   * wait for them. Needs `events`. Not for a receiver with `ack: 'handled'`.
   */
  readonly slowVins?: readonly string[]
  /** How long an answer may take, and handlers after it, in milliseconds. Default 15,000. */
  readonly patienceMs?: number
}

/** An event as `JSON.stringify` writes it. */
export interface HandledEvent {
  readonly topic: string
  readonly vin?: string
  readonly format: string | null
  readonly id: string
  readonly [key: string]: unknown
}

/**
 * What every receiver must do, as code, over HTTP: for the author of an adapter, and for whoever mounts a receiver and wants
 * to know that nothing before it changes what arrives. Runs under any test runner.
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import { serve } from 'fleethook/node'
 * import { receiverConformance } from 'fleethook/testing'
 *
 * const secret = 'a-long-random-value'
 * const server = await serve(createReceiver({ secret }), { port: 3000 })
 * for (const { name, run } of receiverConformance({ url: server.url, secret })) {
 *   await run()
 *   console.log('ok', name)
 * }
 * await server.close()
 * ```
 *
 * Specification: "Webhook delivery", "Topics", "Authentication of outgoing webhook messages".
 */
export function receiverConformance(subject: ReceiverUnderTest): readonly Conformance[] {
  const { events } = subject
  return [...answerChecks(subject), ...(events === undefined ? [] : eventChecks(subject, events))]
}
