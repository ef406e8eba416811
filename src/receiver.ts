import type { Env } from 'hono'
import { createDeadLetters, deadMessage } from './dispatch/dead-letters.ts'
import { createDispatcher } from './dispatch/dispatcher.ts'
import type { DrainResult } from './dispatch/drain.ts'
import { createGaps } from './dispatch/gaps.ts'
import { createRegistry } from './dispatch/registry.ts'
import type { ExtendedBy, FieldCatalogue } from './events/fields.ts'
import { type Answer, type Refusal, refuse, success } from './http/answers.ts'
import { isRefusal, readGiven } from './http/body.ts'
import { markRoutes } from './http/mounted.ts'
import { createRoutes, doorOf, type Incoming } from './http/routes.ts'
import { createSecretCheck } from './http/secret.ts'
import { createIntake, nowhere } from './intake.ts'
import { chooseAck, type ReceiverOptions, readOptions } from './options.ts'
import { createReceipts, vinOf } from './receipt.ts'
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
  const inbox = settings.inbox({ ...limits, overflow: settings.overflow, conflated })
  const ack = chooseAck(settings.ack, inbox.durability)
  const registry = createRegistry()
  const gaps = createGaps()
  const dispatcher = createDispatcher({
    ...settings,
    ack,
    inbox,
    registry,
    read: receipts.reread,
    events: {
      ...reports.dispatch,
      died: (letter, dropped) => reports.noteDead(deadMessage(letter, receipts.reread), dropped),
      missed: (lane, sinceMs) => gaps.note(vinOf(lane), 'deadline', sinceMs),
      roomy: (surroundings) => intake.tellOfGap(surroundings),
    },
  })
  const intake = createIntake({ inbox, ack, dispatcher, gaps, receipts, reports, clock })
  let draining: Promise<DrainResult> | undefined

  function conflated(ids: readonly string[]): void {
    reports.noteConflated(ids.length)
    dispatcher.merged(ids)
  }

  /** The whole way of a request: who sends, what it says, keep it, answer. Handlers follow in a task of their own. */
  async function receive(incoming: Incoming): Promise<Answer> {
    const checked = guard(incoming.authorization, incoming.door, incoming.env)
    const stranger = checked instanceof Promise ? await checked : checked
    if (stranger !== undefined) return refusal(stranger)
    if (draining !== undefined) return refusal({ error: 'draining' })
    dispatcher.enter()
    try {
      const body = await incoming.read(limits.bodyBytes)
      if (isRefusal(body)) {
        if (body.error === 'body_gzip_broken') await intake.takeOwn(receipts.malformed(undefined, body), incoming)
        return refusal(body)
      }
      const { messages, broken } = receipts.read(body, incoming.door)
      const full = await intake.take(messages, incoming)
      if (full !== undefined) return refusal(full)
      if (broken === undefined) return success
      await intake.takeOwn(receipts.malformed(body, broken), incoming)
      return refusal(broken)
    } finally {
      dispatcher.leave()
    }
  }

  function refusal(why: Refusal): Answer {
    reports.noteRefused(why)
    return refuse(why)
  }

  async function drain(deadlineMs: number): Promise<DrainResult> {
    intake.tellOfGap(nowhere)
    const result = await dispatcher.drain(deadlineMs)
    reports.noteUntold(gaps.size)
    await inbox.close()
    return result
  }

  const isFull = (): boolean => {
    const { messages, bytes } = inbox.usage()
    return messages >= limits.pendingMessages || bytes >= limits.pendingBytes
  }
  const { app, fetch } = createRoutes<E>({
    receive,
    busy: () => (draining !== undefined ? 'draining' : isFull() ? 'inbox_full' : undefined),
    refused: reports.noteRefused,
  })

  const receiver: Receiver<E, ExtendedBy<Fields>> = {
    ack,
    durability: inbox.durability,
    on(subjects, handler, filter) {
      registry.add(subjects, handler, filter)
      // Not before there is a handler: without one, all that an earlier process left would count as handled.
      if (inbox.durability !== 'memory') void intake.recover()
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
    drain: ({ deadlineMs = 25_000 } = {}) => (draining ??= drain(deadlineMs)),
    stats: () => ({
      ...reports.counts,
      ...dispatcher.counts,
      lost: dispatcher.counts.lost + reports.counts.unkept,
      topics: { ...reports.topics },
      refused: { ...reports.refused },
      pending: inbox.usage(),
      running: dispatcher.running,
      lanes: dispatcher.lanes,
      openGaps: gaps.size,
      drift: drift.list(),
      draining: draining !== undefined,
    }),
    deadLetters: createDeadLetters({
      inbox,
      read: receipts.reread,
      isDraining: () => draining !== undefined,
      revived(message, from) {
        reports.noteReplayed(message)
        dispatcher.start(dispatcher.add([message], from))
      },
    }),
  }
  markRoutes(app, receiver)
  return receiver
}
