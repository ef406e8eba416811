import { Registry } from './core/registry.ts'
import type { EnumType, ExtendedBy, FieldCatalogue } from './events/fields.ts'
import { type Answer, type Refusal, refuse, success } from './http/answers.ts'
import { markRoutes } from './hosting/drainable.ts'
import {
  answerOf,
  type AuthorizedRequest,
  type Begun,
  createRoutes,
  GivenRequest,
  type Incoming,
  type Routes,
} from './http/routes.ts'
import type { Body } from './http/body.ts'
import type { Door } from './http/paths.ts'
import { createSecretCheck, type SecretCheck } from './http/secret.ts'
import { operatedBy } from './receiver/operated.ts'
import { type HostedReceiver, markHosted } from './receiver/hosted.ts'
import { type Behind, Intake, type ReceiverParts } from './receiver/intake.ts'
import { type ReceiverOptions, readOptions, type Settings } from './receiver/options.ts'
import { checkOption, numberBetween } from './base/options.ts'
import { quietMs } from './base/log.ts'
import { isBound, type RequestScope } from './hosting/execution-context.ts'
import type { DeliveryIds } from './inbox/delivery-id.ts'
import { Receipts, type ReceivedTest, testHeader } from './inbox/receipts.ts'
import type { InboxFactory, InboxMessage } from './inbox/inbox.ts'
import type { AddedBy, Handling, KeepsVehicles, Receiver, Source, Webhook } from './receiver/interface.ts'
import { isEdge } from './vehicles/edge.ts'
import type { BatchOptions } from './core/handler.ts'
import { Reports } from './reports/reports.ts'
import { createNormalizer } from './wire/normalizer.ts'

/**
 * The receiver of one webhook: checks the secret, reads all three payload formats into one typed event union,
 * acknowledges, and runs your handlers, in order per VIN.
 *
 * The service sends each message once. A message that the receiver refuses is lost, and the receiver has the only copy of a
 * message that it acknowledged. `docs/reliability.md` says what can be lost, and when.
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
  const { receiver, webhook, hosted } = assemble<Bindings, ExtendedBy<Fields>, KeepsVehicles<Parts>>(
    readOptions(options),
  )
  markHosted(receiver, hosted)
  const whole: object = Object.assign(receiver, webhook)
  // Whether `vehicles` is there depends on the parts, whose types say the same.
  return whole as Receiver<Bindings, ExtendedBy<Fields>, KeepsVehicles<Parts>> & AddedBy<Parts, ExtendedBy<Fields>> // oxlint-disable-line no-unsafe-type-assertion
}

/** A receiver, and the webhook by which its messages come. The messages of a branch come from another receiver, which has made their `ids`. */
export function assemble<Bindings extends object, Fields extends FieldCatalogue, Keeps extends boolean>(
  given: Settings,
  ids?: DeliveryIds,
  follows?: ReceiverParts['follows'],
): {
  readonly receiver: Handling<Bindings, Fields, Keeps>
  readonly webhook: Webhook<Bindings>
  readonly hosted: HostedReceiver
} {
  const { inbox } = given
  // Where processes share a store, the clock of the store decides.
  const settings = inbox.clock === undefined ? given : { ...given, clock: inbox.clock(given.clock) }
  const { clock, limits, parts } = settings
  const reports = new Reports(settings)
  const { drift, clocksBehind } = reports
  const receipts = new Receipts({
    normalizer: createNormalizer({ ...settings, onDrift: (field, seen) => drift.note(field, seen, 'undecoded') }),
    clock,
    mostMessages: limits.pendingMessages,
    onClockBehind: (behindMs) => reports.noteClockBehind(behindMs),
    ids,
  })
  const vehicles = parts
    .find((part) => 'keep' in part)
    ?.keep({
      ...settings,
      note: (line, details, vin) => reports.noteState(line, details, vin),
      clocksBehind,
      drift,
      fieldsMissing: (missing) => void (reports.fieldsMissing = missing),
    })
  const registry = new Registry(settings.fields, vehicles, settings.branch)
  const behind: Behind = { byName: new Map(), branches: undefined, opened: undefined }
  const intake = new Intake({ settings, registry, receipts, reports, vehicles, behind, operatedBy, follows })
  const entrance = new Entrance(intake)
  const routes = createRoutes<Bindings>(entrance, settings.basePath)
  const receiver = handlingBy<Bindings, Fields, Keeps>(inbox, intake, entrance)
  reports.observers.attach(receiver)
  markRoutes(routes.app, receiver)
  const { begin, targets } = routes
  const hosted = { begin, targets, settings: given, reports, intake }
  markHosted(inbox, hosted)
  return { receiver, webhook: webhookBy(routes, entrance), hosted }
}

/** Where requests and sources come in: their secret is checked, their body is read, and its messages are kept. */
class Entrance {
  readonly #intake: Intake
  readonly #reports: Reports
  #closing: AbortController | undefined
  readonly #checkSecret: ReturnType<typeof createSecretCheck>
  readonly readiness: Intake['operator']['readiness']

  constructor(intake: Intake) {
    const { secret, log } = intake.parts.settings
    this.#intake = intake
    this.#reports = intake.parts.reports
    this.#checkSecret = createSecretCheck(secret, log)
    this.readiness = intake.operator.readiness
  }

  busy(): ReturnType<Intake['busy']> {
    return this.#intake.busy()
  }

  /** The path of a request begins with its secret. With the right one, it may send a body, and a drain waits for that. */
  receive(
    incoming: Incoming,
    door: Door,
    checked: ReturnType<SecretCheck> = this.#checkSecret(incoming.authorization, door, incoming.env),
  ): Begun | Promise<Begun> {
    const intake = this.#intake
    if (checked instanceof Promise) return checked.then((known) => this.receive(incoming, door, known))
    if ('error' in checked) return this.#answer(checked, incoming, door)
    const { place, isListed } = checked
    if (place !== undefined) this.#reports.noteSecret(place)
    if (intake.isDraining) return this.#answer({ error: 'draining' }, incoming, door)
    const entrance: InboxMessage['door'] = isListed && place !== undefined ? `${door} ${place}` : door
    intake.lifecycle.enter()
    return {
      limitBytes: intake.parts.settings.bodyBytes[door],
      take: (body) =>
        this.take(body, incoming, door, entrance)?.then((refusal) =>
          refusal ? this.#answer(refusal, incoming, door) : success,
        ) ?? success,
    }
  }

  /** The path after the secret: read, keep. The refusal says what was not taken. `undefined`: everything is, at once. */
  take(
    given: Body | Refusal,
    request: AuthorizedRequest,
    door: Door,
    entrance: InboxMessage['door'],
    isReady: boolean = this.#intake.readiness.isReady,
  ): Taken {
    const intake = this.#intake
    // Ids of new messages have to sort after ids of old messages, so none is made before the inbox is open.
    if (!isReady)
      return intake.readiness.becomeReady().then((isOpen) => {
        if (isOpen) return this.take(given, request, door, entrance, true)
        intake.lifecycle.leave()
        return { error: 'inbox_unavailable', hint: intake.readiness.hint }
      })
    let rest: Taken
    try {
      const body: Body | Refusal = 'text' in given && given.text.trim() === '' ? { error: 'body_empty' } : given
      const { messages, tests, broken } =
        'error' in body ? { messages: [], broken: body } : intake.parts.receipts.read(body, door, entrance)
      if (tests !== undefined && tests.length > 0) this.#noteTests(tests, request, door)
      const put = intake.put(messages, request)
      if (put !== undefined || broken !== undefined) rest = this.#takeRest(put, messages, broken, body, request)
    } finally {
      if (rest === undefined) intake.lifecycle.leave()
    }
    return rest
  }

  /** Takes the messages of a source, until its end or {@link endSources}. */
  async from(source: Source, from: RequestScope): Promise<void> {
    const intake = this.#intake
    if (intake.isDraining) return undefined
    // Created with the first source: on Workers a signal belongs to a request, and a module has none.
    this.#closing ??= new AbortController()
    return source.feed({
      clock: intake.parts.settings.clock,
      signal: this.#closing.signal,
      take: async (text) => {
        // When the inbox is full, the source gives its message again later.
        const error = intake.inbox.refusing()
        if (error !== undefined) return error
        if (intake.isDraining) return 'draining'
        intake.lifecycle.enter()
        const refusal = await this.take({ text }, from, 'root', 'root')
        if (refusal !== undefined) this.#reports.refusals.note(refusal, { ...refusal, door: 'root' })
        return refusal?.error
      },
      tell: (gap) => intake.putInternal(intake.parts.receipts.own(gap), from),
    })
  }

  /** Ends the sources, as a drain does. */
  endSources(): void {
    this.#closing?.abort()
  }

  /** What follows when the messages before the broken one are kept, or refused. */
  async #takeRest(
    put: ReturnType<Intake['put']>,
    messages: readonly InboxMessage[],
    broken: Refusal | undefined,
    body: Body | Refusal,
    request: AuthorizedRequest,
  ): Promise<RefusalOfMessages | undefined> {
    const intake = this.#intake
    try {
      const refusal = await put
      if (refusal !== undefined) return { ...refusal, messages }
      if (broken === undefined) return undefined
      const text = 'error' in body ? undefined : body
      if (text !== undefined || broken.error === 'body_gzip_broken')
        await intake.putInternal(intake.parts.receipts.malformed(text, broken), request)
      return broken
    } finally {
      if (broken !== undefined) this.#noteUnread(broken, request)
      intake.lifecycle.leave()
    }
  }

  /** The service sent something that nobody could read, and it does not send it again. */
  #noteUnread({ error }: Refusal, request: AuthorizedRequest): void {
    if (isTest(request)) return
    const reason = error === 'body_too_large' ? error : 'body_unreadable'
    const now = this.#intake.parts.settings.clock.now()
    this.#intake.gaps.note({ reason, fromMs: now, toMs: now, missed: 1 }, request)
  }

  #noteTests(tests: readonly ReceivedTest[], request: AuthorizedRequest, door: Door): void {
    const given = request.headers && [...request.headers()]
    const headers = (given ?? []).map(([name, value]) => ({ name, length: value.length }))
    const encoding = given && (given.find(([name]) => name === 'content-encoding')?.[1] ?? 'identity')
    for (const test of tests) this.#reports.noteTest({ ...test, door, encoding, headers })
  }

  #answer(refusal: RefusalOfMessages, incoming: Incoming, door: Door): Answer {
    this.refused(refusal, incoming, door)
    const { context } = incoming
    const lines = isBound(context) ? this.#reports.requestEnds(quietMs) : undefined
    if (lines !== undefined) context?.waitUntil(lines)
    return refuse(refusal)
  }

  /** Counts a refused request. */
  refused(refusal: RefusalOfMessages, request: AuthorizedRequest, door?: Door): void {
    this.#reports.refusals.note(refusal, { door, isTest: isTest(request), ...refusal })
  }
}

/** The receiver as its application uses it. */
function handlingBy<Bindings extends object, Fields extends FieldCatalogue, Keeps extends boolean>(
  inbox: InboxFactory,
  intake: Intake,
  entrance: Entrance,
): Handling<Bindings, Fields, Keeps> {
  const { registry, behind } = intake.parts
  const receiver: Handling<Bindings, Fields, Keeps> = {
    ...intake.operator,
    inbox,
    ack: intake.ack,
    durability: intake.durability,
    on(subjects: unknown, ...rest: readonly unknown[]) {
      registry.add(receiver.on, subjects, rest)
      return receiver
    },
    batch(subjects: unknown, { size, withinMs, ...filter }: BatchOptions<never>, handler: unknown) {
      if (isEdge(subjects)) registry.vehicles('`when`', subjects.reads)
      registry.add(receiver.batch, subjects, [filter, handler], { size, withinMs })
      return receiver
    },
    when(edge: unknown, ...rest: readonly unknown[]) {
      registry.vehicles('`when`', isEdge(edge) ? edge.reads : undefined).checkEdge(edge)
      registry.add(receiver.when, edge, rest)
      return receiver
    },
    async open(openOptions) {
      await intake.readiness.open(openOptions)
    },
    async drain(options = {}) {
      // NaN would end it at once, and lose what is in memory.
      for (const name of ['deadlineMs', 'handlerGraceMs'] as const)
        checkOption('drain', name, options[name], numberBetween(0, Infinity))
      entrance.endSources()
      const drained = intake.drain(options)
      return behind.branches?.drain(options, drained) ?? drained
    },
    async [Symbol.asyncDispose]() {
      await receiver.drain()
    },
  }
  return receiver
}

/** The ways by which messages come. */
function webhookBy<Bindings extends object>(routes: Routes<Bindings>, entrance: Entrance): Webhook<Bindings> {
  return {
    routes: () => routes.app,
    fetch: routes.fetch,
    async accept(message) {
      const request = new GivenRequest(message)
      const door = message.path === undefined ? 'root' : routes.targets.get(message.path.split('?', 1).join())
      if (door === 'root' || door === 'collector') return answerOf(entrance.receive(request, door), request)
      const refusal: Refusal = { error: 'path_unknown' }
      entrance.refused(refusal, request)
      return refuse(refusal)
    },
    from: (source, { env, context } = {}) => entrance.from(source, { env, context }),
  }
}

/** Stops a type of Hono that has the bindings inside, because `createReceiver` takes only the bindings. */
type BindingsNotHonoEnv = object & { readonly Bindings?: never }

/** With `createReceiver<Bindings>`, the compiler no longer infers the types of `fields`, and says so by this name. */
interface MissingSecondTypeArgument extends EnumType {
  readonly 'createReceiver<Bindings, typeof fields>': never
}

function isTest(request: AuthorizedRequest): boolean {
  for (const [name] of request.headers?.() ?? []) if (name === testHeader) return true
  return false
}

type RefusalOfMessages = Refusal & { readonly messages?: readonly InboxMessage[] }

type Taken = Promise<RefusalOfMessages | undefined> | undefined
