import { createRegistry } from './core/registry.ts'
import type { EnumType, ExtendedBy, FieldCatalogue } from './events/fields.ts'
import { type Answer, readinessOf, type Refusal, refuse, success } from './http/answers.ts'
import { markRoutes } from './hosting/drainable.ts'
import { type AuthorizedRequest, createRoutes, GivenRequest, type Incoming } from './http/routes.ts'
import type { Door } from './http/paths.ts'
import { createSecretCheck } from './http/secret.ts'
import { markHosted } from './receiver/hosted.ts'
import { Intake, type ReceiverParts } from './receiver/intake.ts'
import { type ReceiverOptions, readOptions, type Settings } from './receiver/options.ts'
import { FleethookError } from './base/errors.ts'
import { checkOption, numberBetween } from './base/options.ts'
import { quietMs } from './base/log.ts'
import { isBound, type RequestScope } from './hosting/execution-context.ts'
import { createReceipts, type ReceivedTest, testHeader } from './inbox/receipts.ts'
import type { InboxMessage } from './inbox/inbox.ts'
import type { AddedBy, KeepsVehicles, Receiver } from './receiver/interface.ts'
import type { KeptVehicles } from './parts/vehicles.ts'
import { isEdge } from './vehicles/edge.ts'
import type { BatchOptions } from './core/handler.ts'
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
export function createReceiver<
  Bindings extends BindingsNotHonoEnv = object,
  const Fields extends FieldCatalogue = Readonly<Record<string, MissingSecondTypeArgument>>,
  const Parts extends NonNullable<ReceiverOptions<Bindings, Fields>['parts']> = readonly [],
>(
  options: ReceiverOptions<Bindings, Fields> & { readonly parts?: Parts },
): Receiver<Bindings, ExtendedBy<Fields>, KeepsVehicles<Parts>> & AddedBy<Parts, ExtendedBy<Fields>> {
  const settings = timedByInbox(readOptions(options))
  const { clock, limits, bodyBytes, basePath } = settings
  const reports = createReports(settings)
  const noteRefused = reports.refusals.note
  const checkSecret = createSecretCheck(settings.secret, settings.log)
  const receipts = createReceipts(
    createNormalizer({ ...settings, onDrift: (field, seen) => reports.drift.note(field, seen) }),
    clock,
    limits.pendingMessages,
    reports.noteClockBehind,
  )
  const vehiclesPart = settings.parts.find((part) => 'keep' in part)
  const vehicles = vehiclesPart?.keep({
    ...settings,
    note: reports.noteState,
    clocksBehind: reports.clocksBehind,
  })
  const registry = createRegistry(settings.fields, vehicles?.subjects)
  const { inbox } = settings
  const intake = new Intake({ settings, registry, receipts, reports, vehicles })

  /** The whole path of a request: check the secret, read, keep, answer. Handlers run in a task of their own. */
  async function receive(incoming: Incoming, door: Door): Promise<Answer> {
    let entrance: InboxMessage['door'] = door
    const checked = checkSecret(incoming.authorization, door, incoming.env, (place, isListed) => {
      reports.noteSecret(place)
      if (isListed) entrance = `${door} ${place}`
    })
    const refusal = (checked instanceof Promise ? await checked : checked) ?? (await admit(incoming, door, entrance))
    if (refusal === undefined) return success
    const answer = noteAndRefuse(refusal, door, isTest(incoming))
    const lines = isBound(incoming.context) ? reports.requestEnds(quietMs) : undefined
    if (lines !== undefined) incoming.context?.waitUntil(lines)
    return answer
  }

  /** The part of the path after the secret. Resolves to a refusal when something was not taken. */
  async function admit(
    request: AuthorizedRequest,
    door: Door,
    entrance: InboxMessage['door'],
  ): Promise<RefusalOfMessages | undefined> {
    if (intake.isDraining) return { error: 'draining' }
    intake.lifecycle.enter()
    try {
      const body = await request.read(bodyBytes[door])
      // Ids of new messages have to sort after those of old ones, so none is made before the inbox is open.
      if (!intake.isReady && !(await intake.becomeReady()))
        return { error: 'inbox_unavailable', hint: intake.notReadyHint }
      if ('error' in body) {
        if (body.error === 'body_gzip_broken') await intake.putInternal(receipts.malformed(undefined, body), request)
        noteUnread(body, request)
        return body
      }
      const { messages, tests, broken } = receipts.read(body, door, entrance)
      if (tests !== undefined && tests.length > 0) noteTests(tests, request, door)
      const kept = intake.put(messages, request)
      const refusal = kept instanceof Promise ? await kept : kept
      if (broken !== undefined && refusal === undefined)
        await intake.putInternal(receipts.malformed(body, broken), request)
      if (broken !== undefined) noteUnread(broken, request)
      return refusal === undefined ? broken : { ...refusal, messages }
    } finally {
      intake.lifecycle.leave()
    }
  }

  /** The service sent something that nobody could read, and it does not send it again. */
  function noteUnread({ error }: Refusal, request: AuthorizedRequest): void {
    if (isTest(request)) return
    const reason = error === 'body_too_large' ? error : 'body_unreadable'
    const now = clock.now()
    intake.noteGap({ reason, fromMs: now, toMs: now, missed: 1 }, request)
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
      const error = intake.refusing()
      if (error !== undefined) return error
      const refusal = await admit({ ...from, read: async () => ({ text }) }, 'root', 'root')
      if (refusal !== undefined) noteRefused(refusal, { ...refusal, door: 'root' })
      return refusal?.error
    },
    tell: (gap) => intake.putInternal(receipts.own(gap), from),
  })

  let isStopping = false
  /** From the call of `drain` on, load balancers are sent to another process, even while messages are still taken. */
  const busy = (): 'draining' | 'inbox_full' | 'inbox_unavailable' | undefined =>
    isStopping ? 'draining' : intake.refusing()

  const routes = createRoutes<Bindings>(
    {
      receive,
      busy,
      refused: (refusal, request) => noteRefused(refusal, { isTest: isTest(request) }),
    },
    basePath,
  )

  let closing: AbortController | undefined
  const receiver: Receiver<Bindings, ExtendedBy<Fields>, KeepsVehicles<Parts>> = {
    inbox,
    ack: intake.ack,
    durability: intake.durability,
    on(subjects: unknown, ...rest: readonly unknown[]) {
      registry.add(receiver.on, subjects, rest)
      return receiver
    },
    batch(subjects: unknown, { size, withinMs, ...filter }: BatchOptions<never>, handler: unknown) {
      if (isEdge(subjects)) needsVehicles(vehicles)
      registry.add(receiver.batch, subjects, [filter, handler], { size, withinMs })
      return receiver
    },
    when(edge: unknown, ...rest: readonly unknown[]) {
      needsVehicles(vehicles).checkEdge(edge)
      registry.add(receiver.when, edge, rest)
      return receiver
    },
    routes: () => routes.app,
    fetch: routes.fetch,
    async accept(message) {
      const request = new GivenRequest(message)
      const door = message.path === undefined ? 'root' : routes.targetOf(message.path.split('?', 1).join())
      if (door === 'root' || door === 'collector') return receive(request, door)
      return noteAndRefuse({ error: 'path_unknown' }, undefined, isTest(request))
    },
    from(source, { env, context } = {}) {
      // Created with the first source: on Workers a signal belongs to a request, and a module has none.
      closing ??= new AbortController()
      return intake.isDraining
        ? Promise.resolve()
        : source.feed({ ...sinkOf({ env, context }), signal: closing.signal })
    },
    open: (openOptions) => intake.open(openOptions),
    async drain(options = {}) {
      // NaN would end it at once, and lose what is in memory.
      for (const name of ['deadlineMs', 'handlerGraceMs'] as const)
        checkOption('drain', name, options[name], numberBetween(0, Infinity))
      isStopping = true
      closing?.abort()
      return intake.drain(options)
    },
    async [Symbol.asyncDispose]() {
      await receiver.drain()
    },
    readiness: () => readinessOf(busy()),
    handlersOf: (event) => registry.namesFor(event),
    stats: intake.stats,
    failing: intake.failing,
    observe: intake.observe,
    deadLetters: intake.deadLetters,
    messages: intake.messages,
    replay: (which, from) => intake.replay(which, from),
    replaySome: intake.replaySome,
    forget: (vin, options) => intake.forget(vin, options),
  }
  const { vehicles: states } = intake
  const whole = states === undefined ? receiver : Object.assign(receiver, { vehicles: states })
  reports.observers.attach(whole)
  markRoutes(routes.app, receiver)
  const { answer, targetOf } = routes
  const refused = reports.refusals.noteByRuntime
  const noteCertificate = (untilMs: number): void => void (reports.certificate.untilMs = untilMs)
  markHosted(receiver, { answer, targetOf, refused, noteCertificate, secret: settings.secret, intake })
  // Whether `vehicles` is there depends on the parts, whose types say the same.
  return whole as typeof receiver & AddedBy<Parts, ExtendedBy<Fields>> // oxlint-disable-line no-unsafe-type-assertion
}

/** Stops a type of Hono that has the bindings inside, because `createReceiver` takes only the bindings. */
type BindingsNotHonoEnv = object & { readonly Bindings?: never }

/** With `createReceiver<Bindings>`, the compiler no longer infers the types of `fields`, and says so by this name. */
interface MissingSecondTypeArgument extends EnumType {
  readonly 'createReceiver<Bindings, typeof fields>': never
}

/** Throws `handler_invalid` when the receiver keeps no states. */
function needsVehicles(vehicles: ReceiverParts['vehicles']): KeptVehicles {
  if (vehicles !== undefined) return vehicles
  throw new FleethookError('handler_invalid', '`receiver.when` needs the part `vehicles`, and the receiver has none.', {
    hint: "Give createReceiver the option parts: [vehicles({ fields: ['Gear'] })], with the fields that the edge looks at.",
  })
}

function isTest(request: AuthorizedRequest): boolean {
  for (const [name] of request.headers?.() ?? []) if (name === testHeader) return true
  return false
}

type RefusalOfMessages = Refusal & { readonly messages?: readonly InboxMessage[] }

/** One clock decides per store: that of the store. */
function timedByInbox(settings: Settings): Settings {
  const { inbox, clock } = settings
  return inbox.clock === undefined ? settings : { ...settings, clock: inbox.clock(clock) }
}
