import process from 'node:process'
// Deno's own timers may be numbers.
import { setTimeout } from 'node:timers'
import {
  type Ack,
  type Drainable,
  type DrainResult,
  type Durability,
  isRouted,
  receiversIn,
  type RuntimeRefusal,
  runtimeRefusals,
} from '../src/hosting/drainable.ts'
import { FleethookError } from '../src/base/errors.ts'
import { consoleLog } from '../src/base/log.ts'
import { checkOptions, type Rules } from '../src/base/options.ts'
import { detachedContext, envOfRequest, type ExecutionContext } from '../src/hosting/execution-context.ts'
import type { UnopenedInbox } from '../src/observe/stats.ts'
import { type HostedReceiver, hostedBy } from '../src/receiver/hosted.ts'
import { failureDetails } from '../src/reports/failure-details.ts'
import type { Reports } from '../src/reports/reports.ts'
import { markStartupError } from './startup-errors.ts'
import type { Certificate } from './certificate.ts'
import { serveRules, type ServeOptions, type Signal, type TlsOptions, type TlsTexts } from './serve-options.ts'

export type { ServeOptions, Signal, TlsFiles, TlsOptions, TlsTexts } from './serve-options.ts'

/** What can be served: a receiver, or a Hono app that mounts one. */
export interface Served {
  readonly fetch: (request: Request, env?: never, context?: ExecutionContext) => Response | Promise<Response>
}

/** A server that listens. */
export interface Server extends AsyncDisposable {
  /** `http://localhost:3000`, with the port that was taken. */
  readonly url: string
  readonly port: number
  /**
   * Serves another certificate to new connections: this one, or what the files of the option `tls` hold now. Files need no call, because they are
   * watched. Throws `option_invalid` for a pair that cannot be served, and on Bun and Deno, and keeps the old one.
   */
  readonly renewCertificate: (tls?: TlsOptions) => void
  /** Stops: closes listening sockets, idle connections, lingering ones, drains. Resolves to the result of the drain. */
  readonly close: () => Promise<DrainResult>
  /** Resolves when the server has stopped, by a signal or by `close`. */
  readonly closed: Promise<DrainResult>
}

/** What a runtime can do, as `serveOn` needs it. An adapter is one of these. */
export interface Runtime<Options extends ServeOptions> {
  /** Its name, for people. Throws in a process of another runtime. */
  name(): string
  /** The environment variables: what `secret` functions and handlers get as `env`, as they get bindings on Workers. */
  variables(): object
  readonly rules?: Rules<Omit<Options, keyof ServeOptions>>
  /** Why this runtime cannot keep the promise of an `ack`; `undefined` when it can. */
  readonly cannotKeep?: (ack: Ack) => string | undefined
  /** Why it cannot listen on a socket that a launcher such as systemd holds; `undefined` when it can. */
  readonly noInheritedSocket?: string
  /** Whether the socket to listen on outlived the last process. Asked before the inbox opens. */
  listeningWasKept?(options: Options): boolean
  /** Called before the inbox opens. Opening can wait for another process to release the file. */
  opening?(): void
  opened?(): void
  /** Starts to listen. Every request gets a context, so that `c.executionCtx` never throws. */
  listen(served: ServedHere, options: Options, tls: TlsTexts | undefined): Promise<Listening>
  /** Calls `stop` when the signal comes. Returns a function that ends the listening. */
  onSignal(signal: Signal, stop: () => void): () => void
  /** Ends the process as the signal does when nobody listens for it. Left out: the process sends itself the signal. */
  raise?(signal: Signal): void
}

export interface ServedHere {
  /** Answers a request. `connection` has what the runtime knows about the sender, if `wantsConnection` is true. */
  fetch(request: Request, connection: object): Response | Promise<Response>
  readonly wantsConnection: boolean
  /** What is served, when it is a receiver and nothing else: a runtime may then read requests itself. */
  readonly receiver: HostedReceiver | undefined
  /** The bindings of every request: what {@link Runtime.variables} returned. */
  readonly env: object
  /** Called for a request that the runtime refused before a receiver saw it. */
  refused(error: RuntimeRefusal): void
}

/** Sockets that are open. */
export interface Listening {
  readonly port: number
  /** Serves another certificate to new connections, where the runtime can. */
  useCertificate?(texts: TlsTexts): void
  /** Whether no connection is open, where the runtime knows. */
  isIdle?(): boolean
  /** Called when the stop begins. From then on answers ask clients to close their connections. */
  beginStop?(): void
  /** Whether a request was read after this one on the same connection, so that its answer must not close the connection. */
  hasNext?(connection: object): boolean
  /** Takes no new connections, lets requests finish, closes what lingers after `graceMs`. */
  stop(graceMs: number): Promise<void>
}

/** How long answers ask clients to close their connections before the server closes them, in milliseconds. */
const defaultDelayMs = 1_500

/** How long after a drain the process may take to end by itself, in milliseconds. */
const exitAfterMs = 2_000

export function serveOn<Options extends ServeOptions>(
  runtime: Runtime<Options>,
): (served: Served, options?: Options) => Promise<Server> {
  return (served, options) =>
    start(runtime, served, options ?? ({} as Options)).catch((error: unknown) => {
      markStartupError(error)
      throw error
    })
}

async function start<Options extends ServeOptions>(
  runtime: Runtime<Options>,
  served: Served,
  options: Options,
): Promise<Server> {
  const given: ServeOptions = options
  const { port = 3000, hostname, tls, announce = true } = given
  const name = runtime.name()
  checkOptions('serve', options, { ...serveRules, ...runtime.rules })
  // Most servers have no certificate, and what reads one takes long to load.
  const certificate = tls && new (await import('./certificate.ts')).Certificate(tls, name)
  const receivers = receiversOf(served)
  for (const receiver of receivers) checkPromise(runtime, receiver)

  runtime.opening?.()
  const listeningWasKept = runtime.listeningWasKept?.(options) ?? false
  await Promise.all(receivers.map((receiver) => receiver.open({ listeningWasKept })))

  const say = announce ? (line: string): void => console.info(`fleethook: ${line}`) : (): void => {}
  const stop = new Stop(receivers, given, say)
  const here = servedHere(served, runtime.variables(), stop)
  const listening = await runtime.listen(here, options, certificate?.texts).catch((cause: unknown) => {
    throw cannotListen(cause, `${display(hostname)}:${port}`)
  })
  stop.listening = listening
  if (certificate !== undefined) watch(certificate, listening, stop)
  stop.atSignals(runtime)
  if (runtime.noInheritedSocket !== undefined && isSocketOffered()) {
    // What to do about `LISTEN_FDS is set, and`: This runtime [cannot use](deploying.md#bun-and-deno) the socket that systemd passed.
    say(`LISTEN_FDS is set, and ${runtime.noInheritedSocket} So this process listens on a socket of its own.`)
  }
  runtime.opened?.()
  const url = `${tls ? 'https' : 'http'}://${display(hostname)}:${listening.port}`
  // Said last, because a launcher that waits for this line may send a signal at once.
  say(`listening on ${url}\n  ${name}. ${meanings(receivers)}${facts(receivers, 'start')}`)
  return {
    url,
    port: listening.port,
    renewCertificate: (given) => renew(certificate, given),
    close: () => stop.begin(),
    closed: stop.ended,
    async [Symbol.asyncDispose]() {
      await stop.begin()
    },
  }
}

/** What the sockets of a runtime ask. From the beginning of the stop on, answers ask clients to close their connections. */
function servedHere(served: Served, env: object, stop: Stop): ServedHere {
  const isReceiver = isDrainable(served)
  // Made once. Looking up a name in the variables themselves is a call into Deno, which costs each message 0.5 µs.
  const envOfReceiver = envOfRequest(env, {})
  const answer = (request: Request, connection: object): Response | Promise<Response> =>
    // The context says that nothing has to be kept alive. An app gets the connection beside the environment variables.
    served.fetch(request, (isReceiver ? envOfReceiver : envOfRequest(env, connection)) as never, detachedContext)
  return {
    fetch: (request, connection) =>
      stop.isBegun
        ? lastAnswer(answer(request, connection), () => stop.listening?.hasNext?.(connection) ?? false)
        : answer(request, connection),
    wantsConnection: !isReceiver,
    receiver: hostedBy(served),
    env,
    refused(error) {
      const { status, hint } = runtimeRefusals[error]
      const kind = { error, hint, isAuthentic: false }
      for (const { refusals } of stop.reports) {
        refusals.count(kind)
        refusals.tell({ ...kind, status, isTest: false, door: undefined, messages: 0, vins: [] })
      }
    },
  }
}

/** Serves the newest certificate until the stop, and reports when it ends. */
function watch(certificate: Certificate, listening: Listening, stop: Stop): void {
  const { useCertificate } = listening
  certificate.watch(useCertificate && ((texts) => useCertificate.call(listening, texts)), (untilMs) => {
    for (const one of stop.reports) one.certificateUntilMs = untilMs
  })
  stop.atEnd(() => certificate.stop())
}

/** How a server stops: it waits for the load balancer, closes its sockets and drains its receivers, at the same time. */
class Stop {
  /** Undefined until the sockets are open. */
  listening: Listening | undefined
  isBegun = false
  /** Resolves when the server has stopped. */
  readonly ended: Promise<DrainResult>
  readonly reports: readonly Reports[]
  readonly #receivers: readonly Drainable[]
  readonly #options: ServeOptions
  readonly #say: (line: string) => void
  #resolve: (result: Promise<DrainResult>) => void = () => {}
  readonly #atEnd: (() => void)[] = []

  constructor(receivers: readonly Drainable[], options: ServeOptions, say: (line: string) => void) {
    this.#receivers = receivers
    this.#options = options
    this.#say = say
    this.reports = receivers.flatMap((receiver) => hostedBy(receiver)?.reports ?? [])
    this.ended = new Promise((resolve) => (this.#resolve = resolve))
  }

  atEnd(run: () => void): void {
    this.#atEnd.push(run)
  }

  /** Stops at the first signal. The second one ends the process. */
  atSignals(runtime: Runtime<never>): void {
    const { signals = ['SIGTERM', 'SIGINT'], delayBeforeCloseMs, exit = true } = this.#options
    for (const signal of signals === false ? [] : signals) {
      const off = runtime.onSignal(signal, () => {
        if (this.isBegun) {
          this.#forget()
          if (runtime.raise === undefined) process.kill(process.pid, signal)
          else runtime.raise(signal)
          return
        }
        const delayMs = delayBeforeCloseMs ?? (this.#isUnheeded() ? 0 : defaultDelayMs)
        const when = delayMs > 0 ? ` after ${delayMs} ms` : ''
        this.#say(`${signal}: taking no more messages${when}, finishing what was taken. A second signal ends at once.`)
        this.begin(delayMs)
          // What to do about `stopping failed`: The error follows the text.
          .catch((error: unknown) => consoleLog.error('stopping failed', failureDetails(error, true)))
          .finally(() => {
            if (exit) endSoon()
          })
      })
      this.atEnd(off)
    }
  }

  /** Begins the stop, once. The sockets close after `delayMs`. */
  begin(delayMs: number = 0): Promise<DrainResult> {
    if (!this.isBegun) {
      this.isBegun = true
      this.listening?.beginStop?.()
      this.#resolve(this.#run(delayMs))
    }
    return this.ended
  }

  async #run(delayMs: number): Promise<DrainResult> {
    const { graceMs = 25_000, handlerGraceMs = 2_000 } = this.#options
    let listensUntilMs = Infinity
    const notListeningMs = (): number => Math.max(0, performance.now() - listensUntilMs)
    const takeUntil = this.#delay(delayMs).then(() => {
      listensUntilMs = performance.now()
      return this.listening?.stop(graceMs / 2)
    })
    const startedMs = performance.now()
    const deadlineMs = delayMs + graceMs
    const results = await Promise.all(
      this.#receivers.map(async (receiver) => {
        // Answers that wait for handlers need handlers that run, so this drain begins when the sockets are closed.
        if (receiver.ack === 'handled') await takeUntil
        const leftMs = Math.max(0, Math.round(deadlineMs - (performance.now() - startedMs)))
        return receiver.drain({ deadlineMs: leftMs, handlerGraceMs, takeUntil, notListeningMs })
      }),
    )
    await takeUntil
    this.#forget()
    const result = together(results)
    const ofBranches = Object.entries(result.branches ?? {}).map(([name, of]) => ` Branch ${name}: ${stoppedWith(of)}.`)
    this.#say(`stopped: ${stoppedWith(result)}.${ofBranches.join('')}${facts(this.#receivers, 'stop')}`)
    return result
  }

  #forget(): void {
    for (const run of this.#atEnd) run()
  }

  /** Whether nobody is left to tell of the stop: no connection is open, and no load balancer asks whether it is ready. */
  #isUnheeded(): boolean {
    return this.listening?.isIdle?.() === true && !this.reports.some(({ readinessAsked }) => readinessAsked)
  }

  async #delay(delayMs: number): Promise<void> {
    const untilMs = performance.now() + delayMs
    // Clients that are told to close their connections need no more time when the last one is closed.
    while (performance.now() < untilMs && !(this.#options.delayBeforeCloseMs === undefined && this.#isUnheeded())) {
      await new Promise((resolve) => setTimeout(resolve, Math.min(20, untilMs - performance.now())))
    }
  }
}

function renew(certificate: Certificate | undefined, given: TlsOptions | undefined): void {
  if (certificate !== undefined) return certificate.renew(given)
  throw new FleethookError('option_invalid', 'renewCertificate was called, and serve was given no option `tls`.')
}

/** Whether a launcher offers a socket. Deno may not read the variable without a permission. */
function isSocketOffered(): boolean {
  try {
    return process.env['LISTEN_FDS'] !== undefined
  } catch {
    return false
  }
}

/** Ends the process if it does not end by itself. The timer does not keep it alive. */
function endSoon(): void {
  const timer = setTimeout(() => {
    const held = new Map<string, number>()
    for (const name of activeResources()) held.set(name, (held.get(name) ?? 0) + 1)
    const list = [...held].map(([name, count]) => (count === 1 ? name : `${name} (${count})`)).join(', ')
    console.warn(
      // What to do about `the drain is over and the process did not end`: Close your timers, sockets and databases after `server.closed`, or pass
      // `exit: false`.
      `fleethook: the drain is over and the process did not end${list === '' ? '' : `, because of ${list}`}. It ends now. Pass exit: false to serve to keep it.`,
    )
    process.exit()
  }, exitAfterMs)
  timer.unref()
}

/** What keeps the process alive, in the runtime's own words. Bun and Deno list nothing. */
function activeResources(): readonly string[] {
  const ignored = ['TTYWrap', 'PipeWrap']
  return process.getActiveResourcesInfo().filter((name) => !ignored.includes(name))
}

/** Asks the client to close its connection, so that it sends no message into a connection that is closing. */
export async function lastAnswer(answer: Response | Promise<Response>, hasNext?: () => boolean): Promise<Response> {
  const given = await answer
  if (hasNext?.() === true) return given
  const { status, headers, body } = given
  const last = new Headers(headers)
  last.set('connection', 'close')
  return new Response(body, { status, headers: last })
}

function receiversOf(served: Served): readonly Drainable[] {
  if (isDrainable(served)) return [served]
  return isRouted(served) ? receiversIn(served) : []
}

function isDrainable(served: object): served is Drainable {
  return 'drain' in served && 'ack' in served && 'durability' in served
}

function checkPromise(runtime: Runtime<never>, { ack, durability }: Drainable): void {
  const reason = runtime.cannotKeep?.(ack)
  if (reason === undefined) return
  const message = `ack: '${ack}' with an inbox in ${durability} cannot be kept on ${runtime.name()}: ${reason}.`
  throw new FleethookError('ack_unavailable', message, {
    hint: "Use ack: 'handled', or an inbox that outlives the request.",
  })
}

function cannotListen(cause: unknown, address: string): unknown {
  if (cause instanceof FleethookError || !(cause instanceof Error)) return cause
  const why = 'code' in cause && typeof cause.code === 'string' ? cause.code : cause.name
  const hint = /EADDRINUSE|AddrInUse/i.test(why)
    ? 'Another process has this port: stop it, or choose another one; 0 takes any free port.'
    : /EACCES|PermissionDenied|NotCapable/i.test(why)
      ? 'The process may not listen there: ports below 1024 take a privilege.'
      : undefined
  const message = `serve could not listen on ${address}: ${why}.`
  return new FleethookError('listen_failed', message, { cause, hint })
}

/** An app in which no receiver is found is never drained, so the line at startup says so. */
function meanings(receivers: readonly Drainable[]): string {
  if (receivers.length > 0) return [...new Set(receivers.map(meaning))].join(' ')
  // What to do about `No receiver was found in what is served`: Mount it with `app.route(path, receiver.routes())`, or call `receiver.drain()`
  // yourself.
  return 'No receiver was found in what is served, so that stopping drains none: mount it with app.route(path, receiver.routes()), or call receiver.drain() once the server is closed.'
}

/** What the operator should know about the receivers, one line each. */
function facts(receivers: readonly Drainable[], moment: 'start' | 'stop'): string {
  const found = receivers.flatMap((receiver) => hostedBy(receiver) ?? []).flatMap((hosted) => factsOf(hosted, moment))
  return found.map((fact) => `\n  ${fact}`).join('')
}

/** Sentences for the operator, when the receiver has started or has drained. */
function factsOf({ settings: { secret }, intake }: HostedReceiver, moment: 'start' | 'stop'): readonly string[] {
  const { unopened = [], deadLetters = 0 } = intake.operator.stats().inbox
  const atStart =
    moment === 'start'
      ? [
          ...(secret === false ? ['Requests need no secret: anybody can post.'] : []),
          ...(intake.inbox.describe?.() ?? []),
          ...unopenedFacts(unopened),
        ]
      : []
  return [...atStart, ...deadLetterFacts(deadLetters, intake.durability)]
}

function unopenedFacts(unopened: readonly UnopenedInbox[]): readonly string[] {
  if (unopened.length === 0) return []
  const named = unopened
    .slice(0, 3)
    .map(
      ({ path, branch, messages, deadLetters }) =>
        `${branch === undefined ? path : `the branch ${branch} in ${path}`} (${counted(messages, 'message')}, ${counted(deadLetters, 'dead letter')})`,
    )
  const more = unopened.length > named.length ? ` and ${unopened.length - named.length} more` : ''
  return [`No receiver has opened ${named.join(', ')}${more}.`]
}

const counted = (count: number, what: string): string => `${count} ${what}${count === 1 ? '' : 's'}`

function deadLetterFacts(deadLetters: number, durability: Durability): readonly string[] {
  if (deadLetters === 0) return []
  const them = counted(deadLetters, 'dead letter')
  if (durability === 'memory') return [`${them} in memory: gone when the process ends.`]
  return [`${them} ${deadLetters === 1 ? 'waits' : 'wait'}: \`fleethook dead list\`.`]
}

/** What a 2xx means, in plain words. */
function meaning({ ack, durability }: Drainable): string {
  if (ack === 'handled') {
    return durability === 'memory'
      ? 'A 2xx means: every handler of the message is done. A message that was given up gets 500.'
      : 'A 2xx means: every handler of the message is done, or has given it up.'
  }
  if (durability === 'memory') {
    return 'A 2xx means: the message is in the memory of this process, and is lost if the process dies before its handlers are done.'
  }
  const kept = places[durability]
  if (ack === 'received')
    return `A 2xx means: the message has arrived and is about to be stored ${kept}; until then it is lost if the process dies.`
  return `A 2xx means: the message is ${kept} and reaches your handlers at least once, through crashes and power loss.`
}

const places = {
  disk: 'on the disk of this machine',
  replicated: 'on a majority of machines',
  database: 'in the database',
}

function display(hostname: string | undefined): string {
  if (hostname === undefined || hostname === '0.0.0.0' || hostname === '::') return 'localhost'
  return hostname.includes(':') ? `[${hostname}]` : hostname
}

function together(results: readonly DrainResult[]): DrainResult {
  const sum = (what: 'handled' | 'left' | 'lost'): number => results.reduce((total, result) => total + result[what], 0)
  const total = { handled: sum('handled'), left: sum('left'), lost: sum('lost') }
  const branches = results.flatMap((result) => Object.entries(result.branches ?? {}))
  return branches.length === 0 ? total : { ...total, branches: Object.fromEntries(branches) }
}

const stoppedWith = ({ handled, left, lost }: DrainResult): string =>
  `${handled} handled while stopping, ${left} left in the inbox, ${lost} lost`
