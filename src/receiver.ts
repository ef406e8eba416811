import type { Env } from 'hono'
import type { RequestScope } from './dispatch/work.ts'
import { createRegistry } from './dispatch/registry.ts'
import { LocalBackend } from './backend/local.ts'
import type { ExtendedBy, FieldCatalogue } from './events/fields.ts'
import { type Answer, readinessOf, type Refusal, refuse, success } from './http/answers.ts'
import { readGiven } from './http/body.ts'
import { markRoutes } from './hosting/drainable.ts'
import { type AuthorizedRequest, createRoutes, type Incoming } from './http/routes.ts'
import { type Door, targetOf } from './http/paths.ts'
import { createSecretCheck } from './http/secret.ts'
import { markHosted } from './receiver/hosted.ts'
import { type ReceiverOptions, readOptions, type Settings } from './receiver/options.ts'
import { type Backend, type BackendParts, isAttachable } from './backend/backend.ts'
import { FleethookError } from './base/errors.ts'
import { createReceipts, type ReceivedTest, testHeader } from './inbox/receipts.ts'
import type { InboxMessage } from './inbox/inbox.ts'
import type { Receiver } from './receiver/interface.ts'
import { EdgeIndex } from './vehicles/edge-index.ts'
import { Slots } from './vehicles/state.ts'
import { checkEdge, isEdge, type Vehicles } from './vehicles/vehicles.ts'
import type { BatchOptions } from './dispatch/handler.ts'
import { createReports } from './receiver/reports.ts'
import type { Sink } from './receiver/source.ts'
import { createNormalizer } from './wire/normalizer.ts'

/**
 * The receiver of one webhook: checks the secret, reads all three payload formats into one typed event union,
 * acknowledges, and runs your handlers, in order per VIN.
 *
 * The service sends each message once. A message that the receiver refuses is lost, and the receiver has the only copy of a
 * message that it acknowledged. `docs/delivery.md` says what can be lost, and when.
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
  const reports = createReports(settings)
  const noteRefused = reports.refusals.note
  const checkSecret = createSecretCheck(settings.secret, settings.log)
  const receipts = createReceipts(
    createNormalizer({ ...settings, onDrift: (field, seen) => reports.drift.note(field, seen) }),
    clock,
    limits.pendingMessages,
  )
  const vehicles = settings.vehicles && {
    slots: new Slots(settings.vehicles.fields, settings.vehicles.deltas),
    edges: new EdgeIndex(),
  }
  const registry = createRegistry(settings.fields, vehicles && ((field) => vehicles.slots.keeps(field)))
  const { inbox } = settings
  const parts = { settings, registry, receipts, reports, vehicles }
  const backend = backendOf(inbox, parts)

  /** The whole path of a request: check the secret, read, keep, answer. Handlers run in a task of their own. */
  async function receive(incoming: Incoming, door: Door): Promise<Answer> {
    const checked = checkSecret(incoming.authorization, door, incoming.env)
    const refusal = (checked instanceof Promise ? await checked : checked) ?? (await admit(incoming, door))
    return refusal === undefined ? success : noteAndRefuse(refusal, door, isTest(incoming))
  }

  /** The part of the path after the secret. Resolves to a refusal when something was not taken. */
  async function admit(request: AuthorizedRequest, door: Door): Promise<RefusalOfMessages | undefined> {
    if (backend.isDraining) return { error: 'draining' }
    backend.lifecycle.enter()
    try {
      const body = await request.read(limits.bodyBytes)
      // Ids of new messages have to sort after those of old ones, so none is made before the inbox is open.
      if (!backend.isReady && !(await backend.becomeReady())) return { error: 'inbox_unavailable' }
      if ('error' in body) {
        noteUnread(body, request)
        if (body.error === 'body_gzip_broken') await backend.putInternal(receipts.malformed(undefined, body), request)
        return body
      }
      const { messages, tests, broken } = receipts.read(body, door)
      if (tests !== undefined && tests.length > 0) noteTests(tests, request, door)
      const kept = backend.put(messages, request)
      const refusal = kept instanceof Promise ? await kept : kept
      if (broken !== undefined) noteUnread(broken, request)
      if (refusal !== undefined) return { ...refusal, messages }
      if (broken !== undefined) await backend.putInternal(receipts.malformed(body, broken), request)
      return broken
    } finally {
      backend.lifecycle.leave()
    }
  }

  /** The service sent something that nobody could read, and it does not send it again. */
  function noteUnread({ error }: Refusal, request: AuthorizedRequest): void {
    if (isTest(request)) return
    const reason = error === 'body_too_large' ? error : 'body_unreadable'
    const now = clock.now()
    backend.noteGap({ reason, fromMs: now, toMs: now, missed: 1 }, request)
  }

  function noteTests(tests: readonly ReceivedTest[], request: AuthorizedRequest, door: Door): void {
    const given = request.headers && [...request.headers()]
    const headers = (given ?? []).map(([name, value]) => ({ name, length: value.length }))
    const encoding = given && (given.find(([name]) => name === 'content-encoding')?.[1] ?? 'identity')
    for (const test of tests) reports.noteTest({ ...test, door, encoding, headers })
  }

  function noteAndRefuse(refusal: RefusalOfMessages, door?: Door, isOfTest: boolean = false): Answer {
    noteRefused(refusal, { door, isTest: isOfTest, ...refusal })
    return refuse(refusal)
  }

  /** What a source may call. When the inbox is full, the source gives its message again later. */
  const sinkOf = (from: RequestScope): Omit<Sink, 'signal'> => ({
    clock,
    async take(text) {
      const error = backend.refusing()
      if (error !== undefined) return error
      const refusal = await admit({ ...from, read: async () => ({ text }) }, 'root')
      if (refusal !== undefined) noteRefused(refusal, { ...refusal, door: 'root' })
      return refusal?.error
    },
    tell: (gap) => backend.putInternal(receipts.gap(gap), from),
  })

  let isStopping = false
  /** From the call of `drain` on, load balancers are sent to another process, even while messages are still taken. */
  const busy = (): 'draining' | 'inbox_full' | 'inbox_unavailable' | undefined =>
    isStopping ? 'draining' : backend.refusing()

  const { app, fetch, answer } = createRoutes<E>({ receive, busy, refused: noteRefused })

  let closing: AbortController | undefined
  const receiver: Receiver<E, ExtendedBy<Fields>> = {
    inbox,
    ack: backend.ack,
    durability: backend.durability,
    on(subjects, handler, filter) {
      registry.add(subjects, handler, filter)
      return receiver
    },
    batch(subjects: unknown, batchOptions: BatchOptions<never>, handler: unknown) {
      if (isEdge(subjects)) registry.addEdgeBatch(addedEdge(subjects, vehicles, settings.fields), batchOptions, handler)
      else registry.addBatch(subjects, batchOptions, handler)
      return receiver
    },
    when(edge, handler, filter) {
      registry.addEdge(addedEdge(edge, vehicles, settings.fields), handler, filter)
      return receiver
    },
    vehicles: vehiclesOf(backend),
    onError(handler) {
      reports.onError(handler)
      return receiver
    },
    onRefused(handler) {
      reports.onRefused(handler)
      return receiver
    },
    routes: () => app,
    fetch,
    async accept({ authorization, body, contentEncoding, path = '/', env, context }) {
      const door = targetOf(path)
      if (door !== 'root' && door !== 'collector') return noteAndRefuse({ error: 'path_unknown' })
      const read: Incoming['read'] = (limitBytes) => readGiven(body, contentEncoding, limitBytes)
      return receive({ authorization, env, context, read }, door)
    },
    from(source, { env, context } = {}) {
      // Created with the first source: on Workers a signal belongs to a request, and a module has none.
      closing ??= new AbortController()
      return backend.isDraining
        ? Promise.resolve()
        : source.feed({ ...sinkOf({ env, context }), signal: closing.signal })
    },
    open: (openOptions) => backend.open(openOptions),
    drain(options = {}) {
      isStopping = true
      closing?.abort()
      return backend.drain(options)
    },
    readiness: () => readinessOf(busy()),
    handlersOf: (event) => registry.namesFor(event),
    stats: backend.stats,
    observe: backend.observe,
    deadLetters: backend.deadLetters,
    messages: backend.messages,
    replay: (which, from) => backend.replay(which, from),
  }
  reports.observers.attach(receiver)
  markRoutes(app, receiver)
  markHosted(receiver, { answer, refused: reports.refusals.noteByRuntime, secret: settings.secret, backend })
  return receiver
}

/** Adds an edge to those of the receiver and returns its name. Throws `handler_invalid`. */
function addedEdge(given: unknown, vehicles: BackendParts['vehicles'], ownFields?: FieldCatalogue): string {
  if (vehicles === undefined) {
    throw new FleethookError('handler_invalid', '`receiver.when` needs the option `vehicles`, which is off.', {
      hint: "Give createReceiver the option vehicles: { fields: ['Gear'] }, with the fields that the edge looks at.",
    })
  }
  const edge = checkEdge(given, vehicles.slots, ownFields)
  vehicles.edges.add(edge)
  return edge.name
}

/** The newest state of each vehicle, or methods that say why there is none. */
function vehiclesOf<Fields extends FieldCatalogue>({ vehicles }: Backend): Vehicles<Fields> {
  // The fields were checked against the catalogue when the option was read.
  if (vehicles !== undefined) return vehicles as unknown as Vehicles<Fields> // oxlint-disable-line no-unsafe-type-assertion
  const off = async (): Promise<never> => {
    throw new FleethookError('option_invalid', '`receiver.vehicles` needs the option `vehicles`, which is off.', {
      hint: "Give createReceiver the option vehicles: { fields: ['Gear'] }.",
    })
  }
  return { get: off, list: off, forget: off, stats: off }
}

/** Whether a request says that it carries a test message. */
function isTest(request: AuthorizedRequest): boolean {
  for (const [name] of request.headers?.() ?? []) if (name === testHeader) return true
  return false
}

/** A refusal, with the messages that were read and not kept. */
type RefusalOfMessages = Refusal & { readonly messages?: readonly InboxMessage[] }

function backendOf(inbox: Settings['inbox'], parts: BackendParts): Backend {
  if (isAttachable(inbox)) return inbox.attach(parts)
  if (typeof inbox === 'function') return new LocalBackend({ ...parts, inbox })
  throw new FleethookError(
    'option_invalid',
    'Option `inbox` of createReceiver comes from another version of fleethook.',
    { hint: 'Install one version of fleethook.' },
  )
}
