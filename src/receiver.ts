import type { Env } from 'hono'
import { createRegistry } from './dispatch/registry.ts'
import { createEngine } from './engine.ts'
import type { ExtendedBy, FieldCatalogue } from './events/fields.ts'
import { type Answer, type Refusal, refuse, success } from './http/answers.ts'
import { isRefusal, readGiven } from './http/body.ts'
import { markRoutes } from './http/mounted.ts'
import { createRoutes, doorOf, type Incoming } from './http/routes.ts'
import { createSecretCheck } from './http/secret.ts'
import { isRelay, markRelay, type RelayParts } from './inbox/relay.ts'
import { type ReceiverOptions, readOptions } from './options.ts'
import { createReceipts } from './receipt.ts'
import type { Receiver } from './receiver-interface.ts'
import { createReports } from './reports.ts'
import { createDriftReport } from './wire/drift.ts'
import { createNormalizer } from './wire/normalizer.ts'

/**
 * The receiver of one webhook: checks the secret, reads all three payload formats into one typed event union,
 * acknowledges, and runs your handlers, in order per VIN.
 *
 * The service sends each message once, so what the receiver answers with anything but a 2xx is lost, and what it has
 * acknowledged it alone has. See `docs/delivery.md` for what can be lost, and when.
 *
 * Throws a `FleethookError` that names the option when one is missing or wrong.
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import { serve } from 'fleethook/node'
 *
 * const receiver = createReceiver({ secret: process.env.WEBHOOK_SECRET })
 *   .on('data', (event) => console.log(event.vin, event.data.BatteryLevel))
 *   .on('*', (event) => console.log(event.topic))
 *
 * await serve(receiver, { port: 3000 })
 * ```
 *
 * Specification: "Webhook delivery", "Topics", "Authentication of outgoing webhook messages".
 */
export function createReceiver<E extends Env = Env, const Fields extends FieldCatalogue = FieldCatalogue>(
  options: ReceiverOptions<E, Fields>,
): Receiver<E, ExtendedBy<Fields>> {
  const settings = readOptions(options)
  const { clock, limits } = settings
  const drift = createDriftReport()
  const reports = createReports(settings)
  const guard = createSecretCheck(settings.secret, settings.log)
  const receipts = createReceipts(
    createNormalizer({ ...settings, onDrift: (field, seen) => drift.note(field, seen) }),
    clock,
    limits.pendingMessages,
  )
  const registry = createRegistry()
  const createEngineOver: RelayParts['createEngine'] = (inbox, over) =>
    createEngine({ inbox, registry, receipts, reports, ...over })
  const taker = isRelay(settings.inbox)
    ? settings.inbox.attach({ settings, registry, receipts, reports, createEngine: createEngineOver })
    : createEngine({ settings, inbox: settings.inbox, registry, receipts, reports })

  /** The whole way of a request: who sends, what it says, keep it, answer. Handlers follow in a task of their own. */
  async function receive(incoming: Incoming): Promise<Answer> {
    const checked = guard(incoming.authorization, incoming.door, incoming.env)
    const stranger = checked instanceof Promise ? await checked : checked
    if (stranger !== undefined) return refusal(stranger)
    if (taker.draining) return refusal({ error: 'draining' })
    taker.enter()
    try {
      const body = await incoming.read(limits.bodyBytes)
      // Ids of new messages have to sort after those of old ones, so none is made before the inbox is open.
      if (!taker.isReady && !(await taker.becomeReady())) return refusal({ error: 'inbox_unavailable' })
      if (isRefusal(body)) {
        if (body.error === 'body_gzip_broken') await taker.takeOwn(receipts.malformed(undefined, body), incoming)
        return refusal(body)
      }
      const { messages, broken } = receipts.read(body, incoming.door)
      const full = await taker.take(messages, incoming)
      if (full !== undefined) return refusal(full)
      if (broken === undefined) return success
      await taker.takeOwn(receipts.malformed(body, broken), incoming)
      return refusal(broken)
    } finally {
      taker.leave()
    }
  }

  function refusal(why: Refusal): Answer {
    reports.noteRefused(why)
    return refuse(why)
  }

  const { app, fetch } = createRoutes<E>({
    receive,
    busy: () => (taker.draining ? 'draining' : taker.refusing()),
    refused: reports.noteRefused,
  })

  const receiver: Receiver<E, ExtendedBy<Fields>> = {
    ack: taker.ack,
    durability: taker.durability,
    on(subjects, handler, filter) {
      registry.add(subjects, handler, filter)
      return receiver
    },
    onError(handler) {
      reports.onError(handler)
      return receiver
    },
    routes: () => app,
    fetch,
    async accept({ authorization, body, contentEncoding, path = '/', env, context }) {
      const door = doorOf(path)
      if (door === undefined) return refusal({ error: 'path_unknown' })
      return receive({
        authorization,
        door,
        env,
        context,
        read: (limitBytes) => readGiven(body, contentEncoding, limitBytes),
      })
    },
    open: () => taker.open(),
    drain: ({ deadlineMs = 25_000 } = {}) => taker.drain(deadlineMs),
    stats() {
      const state = taker.state()
      return {
        ...reports.counts,
        ...state,
        lost: state.lost + reports.counts.unkept,
        topics: { ...reports.topics },
        refused: { ...reports.refused },
        drift: drift.list(),
        draining: taker.draining,
      }
    },
    deadLetters: taker.deadLetters,
  }
  markRoutes(app, receiver)
  if (isRelay(settings.inbox)) markRelay(receiver, settings.inbox)
  return receiver
}
