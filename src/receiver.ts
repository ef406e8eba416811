import type { Env } from 'hono'
import { type Batch, isHeld } from './dispatch/batch.ts'
import { createDeadLetters, deadMessage } from './dispatch/dead-letters.ts'
import { createDispatcher, type DrainResult } from './dispatch/dispatcher.ts'
import { createGaps } from './dispatch/gaps.ts'
import { createRegistry } from './dispatch/registry.ts'
import { FleethookError } from './errors.ts'
import type { BuiltInFields, ExtendedBy, FieldCatalogue } from './events/fields.ts'
import { type Answer, type Refusal, refuse, success } from './http/answers.ts'
import { isRefusal, readGiven } from './http/body.ts'
import { markRoutes } from './http/mounted.ts'
import { createRoutes, doorOf, type Incoming } from './http/routes.ts'
import { createSecretCheck } from './http/secret.ts'
import type { InboxMessage } from './inbox/inbox.ts'
import { chooseAck, type ReceiverOptions, readOptions } from './options.ts'
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
export function createReceiver<E extends Env = Env, const Fields extends FieldCatalogue = BuiltInFields>(
  options: ReceiverOptions<E, Fields>,
): Receiver<E, ExtendedBy<Fields>> {
  const settings = readOptions(options)
  const { clock, limits } = settings
  const drift = createDriftReport()
  const reports = createReports(settings)
  const guard = createSecretCheck(settings.secret, settings.log)
  const receipts = createReceipts(createNormalizer({ ...settings, onDrift: drift.note }), clock)
  const inbox = settings.inbox({ ...limits, overflow: settings.overflow, conflated: reports.noteConflated })
  const ack = chooseAck(settings.ack, inbox.durability)
  const registry = createRegistry()
  const gaps = createGaps()
  const dispatcher = createDispatcher({
    ...settings,
    inbox,
    registry,
    read: receipts.reread,
    events: {
      ...reports.dispatch,
      died: (letter, dropped) => reports.noteDead(deadMessage(letter, receipts.reread), dropped),
      roomy: tellOfGap,
    },
  })
  let underWay = 0
  let whenNoneUnderWay = (): void => {}
  let draining: Promise<DrainResult> | undefined
  let telling = false

  /** The whole way of a request: who sends, what it says, keep it, answer. Handlers follow in a task of their own. */
  async function receive(incoming: Incoming): Promise<Answer> {
    const stranger = await guard(incoming.authorization, incoming.door, incoming.env)
    if (stranger !== undefined) return refusal(stranger)
    if (draining !== undefined) return refusal({ error: 'draining' })
    return during(async () => {
      const body = await incoming.read(limits.bodyBytes)
      if (isRefusal(body)) {
        if (body.error === 'body_gzip_broken') await keepOwn(receipts.malformed(undefined, body), incoming)
        return refusal(body)
      }
      const { messages, broken } = receipts.read(body, incoming.door)
      const full = await keep(messages, incoming)
      if (full !== undefined) return refusal(full)
      if (broken === undefined) return success
      await keepOwn(receipts.malformed(body, broken), incoming)
      return refusal(broken)
    })
  }

  /** Keeps messages and starts their handlers. Resolves when the answer may leave, to why it must be a refusal. */
  async function keep(
    messages: readonly InboxMessage[],
    from: Pick<Incoming, 'env' | 'context'>,
  ): Promise<Refusal | undefined> {
    if (messages.length === 0) return undefined
    const kept = store(messages, from)
    if (ack === 'received' && inbox.durability !== 'memory') {
      const settled = during(() => kept)
      if (isHeld(from.context)) from.context.waitUntil(settled)
      return undefined
    }
    const batch = await kept
    if ('error' in batch) return batch
    if (ack === 'handled') await batch.settled
    return undefined
  }

  async function store(
    messages: readonly InboxMessage[],
    { env, context }: Pick<Incoming, 'env' | 'context'>,
  ): Promise<Batch | Refusal> {
    try {
      await recovered
      await inbox.put(messages)
    } catch (error) {
      const full = error instanceof FleethookError && error.code === 'inbox_full'
      if (!full) reports.dispatch.inboxFailed(error)
      const reason = full ? 'inbox_full' : 'inbox_unavailable'
      for (const { event } of messages) if (event?.topic !== 'malformed') gaps.note(event?.vin, reason, 1, clock.now())
      return { error: reason }
    }
    reports.noteAccepted(messages)
    return dispatcher.start(messages, env, context)
  }

  /** What the receiver made itself is kept if there is room; it stands for nothing that was acknowledged. */
  async function keepOwn(message: InboxMessage, { env, context }: Pick<Incoming, 'env' | 'context'>): Promise<boolean> {
    try {
      await inbox.put([message])
    } catch {
      return false
    }
    dispatcher.start([message], env, context)
    return true
  }

  /** There is room again: closes the oldest hole, so that a business can fetch what it missed. */
  function tellOfGap(): void {
    if (gaps.size === 0 || telling) return
    telling = true
    void during(async () => {
      const gap = gaps.oldest(clock.now())
      if (gap !== undefined && (await keepOwn(receipts.gap(gap), { env: undefined, context: undefined })))
        gaps.close(gap)
      telling = false
    })
  }

  /** A drain waits for what is on its way between the secret and the inbox. */
  async function during<T>(run: () => Promise<T>): Promise<T> {
    underWay += 1
    try {
      return await run()
    } finally {
      underWay -= 1
      if (underWay === 0) whenNoneUnderWay()
    }
  }

  function refusal(why: Refusal): Answer {
    reports.noteRefused(why)
    return refuse(why)
  }

  async function recover(): Promise<void> {
    for await (const left of inbox.recover()) dispatcher.start([left], undefined, undefined)
  }
  // Nothing waits in memory when a process begins, so nothing has to be waited for.
  const recovered = inbox.durability === 'memory' ? undefined : recover().catch(reports.dispatch.inboxFailed)

  async function drain(deadlineMs: number): Promise<DrainResult> {
    const taken = new Promise<void>((resolve) => {
      whenNoneUnderWay = resolve
      if (underWay === 0) resolve()
      clock.after(deadlineMs, resolve)
    })
    await taken
    const result = await dispatcher.drain(deadlineMs)
    await inbox.close()
    return result
  }

  const isFull = (): boolean => {
    const { messages, bytes } = inbox.usage()
    return messages >= limits.pendingMessages || bytes >= limits.pendingBytes
  }
  const app = createRoutes<E>({
    receive,
    busy: () => (draining !== undefined ? 'draining' : isFull() ? 'inbox_full' : undefined),
    refused: reports.noteRefused,
  })

  const receiver: Receiver<E, ExtendedBy<Fields>> = {
    ack,
    durability: inbox.durability,
    on(subjects, handler, filter) {
      registry.add(subjects, handler, filter)
      return receiver
    },
    onError(handler) {
      reports.onError(handler)
      return receiver
    },
    routes: () => app,
    fetch: (request, env, context) => app.fetch(request, env, context),
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
      received: reports.received,
      topics: { ...reports.topics },
      ...dispatcher.counts,
      deadLettersDropped: reports.deadLettersDropped,
      conflated: reports.conflated,
      refused: { ...reports.refused },
      pending: inbox.usage(),
      running: dispatcher.running,
      lanes: dispatcher.lanes,
      openGaps: gaps.size,
      drift: drift.list(),
      draining: draining !== undefined,
    }),
    deadLetters: createDeadLetters(inbox, receipts.reread, async (message) => {
      await inbox.put([message])
      dispatcher.start([message], undefined, undefined)
    }),
  }
  markRoutes(app, receiver)
  return receiver
}
