import type { Admin, BaseOptions, Consumer, Producer } from '@platformatic/kafka'
import { FleethookError } from '../../../src/base/errors.ts'
import type { KafkaSettings, KafkaTls } from './options.ts'

/** The metadata of positions, by partition. The client itself writes none and drops what it reads. */
export interface PositionMetadata {
  readonly committing: Map<number, string>
  /** What was read last. */
  readonly found: Map<number, string>
}

/** The version of the client that this inbox is tested with. package.json names the same one. */
const testedClient = '2.12.1'

export type Client = typeof import('@platformatic/kafka')

/** Loads the client, which is an optional peer. Rejects with `inbox_unsupported` when it is missing or does not run here. */
export async function loadClient(): Promise<Client> {
  try {
    return await import('@platformatic/kafka')
  } catch (cause) {
    const isMissing = cause instanceof Error && Reflect.get(cause, 'code') === 'ERR_MODULE_NOT_FOUND'
    throw new FleethookError(
      'inbox_unsupported',
      isMissing || !(cause instanceof Error)
        ? 'kafkaInbox needs the package @platformatic/kafka, and it is not installed.'
        : `kafkaInbox needs the package @platformatic/kafka, and it does not load here: ${cause.message.split('\n')[0]}.`,
      {
        cause,
        hint: `Install it: npm install @platformatic/kafka@${testedClient}. It runs on Node 22.22 or 24.6, Bun and Deno.`,
      },
    )
  }
}

const connectMs = 3_000

/**
 * Makes clients of the cluster. None of them retries by itself: a retry of the client would reorder messages, and would repeat a
 * commit after a rebalance. Each new client has another broker first in its list: a client always tries the first one first, even
 * when that one accepts connections and never answers.
 */
export class Connector {
  readonly client: Client
  readonly #settings: KafkaSettings
  #made = 0

  constructor(client: Client, settings: KafkaSettings) {
    this.client = client
    this.#settings = settings
  }

  producer(requestTimeout: number, produceTimeout: number): Producer {
    // `acks` belongs in every `send`: the client ignores it here.
    return this.#prepared(
      new this.client.Producer({
        ...this.#options(requestTimeout),
        timeout: produceTimeout,
        repeatOnStaleMetadata: false,
      }),
    )
  }

  consumer(
    requestTimeout: number,
    group: { readonly sessionMs: number; readonly heartbeatMs: number; readonly rebalanceMs: number },
    metadata?: PositionMetadata,
  ): Consumer {
    const { groupId } = this.#settings
    return this.#prepared(
      new this.client.Consumer({
        ...this.#options(requestTimeout),
        groupId,
        sessionTimeout: group.sessionMs,
        heartbeatInterval: group.heartbeatMs,
        rebalanceTimeout: group.rebalanceMs,
        isolationLevel: this.client.FetchIsolationLevels.READ_UNCOMMITTED,
      }),
      metadata,
    )
  }

  admin(requestTimeout: number): Admin {
    return this.#prepared(new this.client.Admin(this.#options(requestTimeout)))
  }

  #prepared<Any extends Admin | Consumer | Producer>(client: Any, metadata?: PositionMetadata): Any {
    // Without a listener, an `error` event of the client would end the process. Callers get the error from what they await.
    client.on('error', () => {})
    const getApi = client[this.client.kGetApi]
    client[this.client.kGetApi] = (name, callback) => {
      const answered: typeof callback = (error, api) => {
        if (api === undefined) callback(error, api)
        else if (name === 'Metadata') callback(error, acceptingLeaderless(api))
        else if (name === 'OffsetCommit' && metadata !== undefined) callback(error, committing(api, metadata))
        else if (name === 'OffsetFetch' && metadata !== undefined) callback(error, noting(api, metadata))
        else callback(error, api)
      }
      Reflect.apply(getApi, client, [name, answered])
    }
    return client
  }

  #options(requestTimeout: number): BaseOptions {
    const { brokers, tls, sasl, clientId } = this.#settings
    const first = this.#made++ % brokers.length
    return {
      clientId,
      bootstrapBrokers: [...brokers.slice(first), ...brokers.slice(0, first)],
      connectTimeout: connectMs,
      requestTimeout,
      retries: 0,
      retryDelay: 100,
      // Long, because the metadata is refreshed after every error.
      metadataMaxAge: 300_000,
      autocreateTopics: false,
      ...(tls === undefined ? {} : { tls: tlsOptions(tls) }),
      ...(sasl === undefined ? {} : { sasl }),
    }
  }
}

/** Node's types want mutable lists. */
function tlsOptions({ ca, ...others }: KafkaTls): NonNullable<BaseOptions['tls']> {
  return { ...others, ...(ca === undefined ? {} : { ca: [ca].flat() }) }
}

/** Accepts metadata in which partitions have no leader. The client would reject all of it, and use no partition. */
function acceptingLeaderless<Api extends object>(api: Api): Api {
  return answering(api, (error, response, callback) => {
    const found = leaderlessMetadata(error)
    callback(found === undefined ? error : null, found ?? response)
  })
}

/** Calls `answer` with what the brokers answer, and with the callback of the client. */
function answering<Api extends object>(
  api: Api,
  answer: (error: unknown, response: unknown, callback: (error: unknown, response: unknown) => void) => void,
): Api {
  return new Proxy(api, {
    apply(target, self, given: readonly unknown[]) {
      const callback = given.at(-1)
      const answered = (error: unknown, response: unknown): void =>
        answer(error, response, (...args) => void (typeof callback === 'function' && callback(...args)))
      if (typeof target === 'function') Reflect.apply(target, self, [...given.slice(0, -1), answered])
    },
  })
}

type PositionTopics = readonly {
  readonly partitions: readonly { readonly partitionIndex: number; committedMetadata?: unknown; metadata?: unknown }[]
}[]

/** Makes the client commit metadata: its request has an empty place for it. */
function committing<Api extends object>(api: Api, { committing: marks }: PositionMetadata): Api {
  return new Proxy(api, {
    apply(target, self, given: readonly unknown[]) {
      const topics: PositionTopics = given.find(Array.isArray) ?? []
      for (const { partitions } of topics)
        for (const place of partitions) place.committedMetadata = marks.get(place.partitionIndex) ?? null
      if (typeof target === 'function') Reflect.apply(target, self, [...given])
    },
  })
}

/** Notes the metadata that the brokers answer with. */
function noting<Api extends object>(api: Api, { found }: PositionMetadata): Api {
  return answering(api, (error, response, callback) => {
    const { groups = [response] }: { groups?: readonly unknown[] } = Object(response)
    for (const group of groups) {
      const { topics = [] }: { topics?: PositionTopics } = Object(group)
      for (const { partitions } of topics)
        for (const { partitionIndex, metadata } of partitions)
          found.set(partitionIndex, typeof metadata === 'string' ? metadata : '')
    }
    callback(error, response)
  })
}

/** The metadata in an error that says only that partitions have no leader. There, the leader of these is -1. */
function leaderlessMetadata(error: unknown): unknown {
  const isLeaderless = (inner: unknown): boolean =>
    inner instanceof Error &&
    ['LEADER_NOT_AVAILABLE', 'LISTENER_NOT_FOUND'].includes(Reflect.get(inner, 'apiId')) &&
    /\/partitions\/\d+$/.test(Reflect.get(inner, 'path'))
  return error instanceof AggregateError && error.errors.length > 0 && error.errors.every(isLeaderless)
    ? Reflect.get(error, 'response')
    : undefined
}

export const metadataRetries = 2

/** Closes a client. Never rejects and never waits long: a broker that does not answer must not delay a stop. */
export async function closeClient(client: Admin | Consumer | Producer | undefined, atMostMs = 1_500): Promise<void> {
  if (client === undefined) return
  let timer: ReturnType<typeof setTimeout> | undefined
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, atMostMs)
  })
  const closing = 'groupId' in client ? closeConsumer(client) : client.close()
  await Promise.race([closing.catch(() => {}), late])
  clearTimeout(timer)
}

/** `close` alone does not stop a join under way, after which the client would send heartbeats without end. */
async function closeConsumer(consumer: Consumer): Promise<void> {
  await new Promise((resolve) => {
    consumer.leaveGroup(true, resolve)
  })
  await consumer.close(true).catch(() => {})
  await consumer.connections.close()
}

/** Yields an error, the errors that it aggregates, and the causes of all of them. */
export function* errorsIn(error: unknown): Generator<Error> {
  if (!(error instanceof Error)) return
  yield error
  if (error instanceof AggregateError) for (const inner of error.errors) yield* errorsIn(inner)
  yield* errorsIn(error.cause)
}

/** The codes in an error: from the protocol (for instance `NOT_LEADER_OR_FOLLOWER`), of the client, and of the system. */
export function codesOf(error: unknown): ReadonlySet<string> {
  const codes = new Set<string>()
  for (const inner of errorsIn(error))
    for (const name of ['apiId', 'code'])
      if (typeof Reflect.get(inner, name) === 'string') codes.add(String(Reflect.get(inner, name)))
  return codes
}

const unauthorized = ['TOPIC_AUTHORIZATION_FAILED', 'GROUP_AUTHORIZATION_FAILED', 'CLUSTER_AUTHORIZATION_FAILED']
const untrusted =
  /^(?:DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_VERIFY_LEAF_SIGNATURE|UNABLE_TO_GET_ISSUER_CERT.*|CERT_HAS_EXPIRED|ERR_TLS_CERT_ALTNAME_INVALID)$/

/** The same for a cluster that this process has used before: there, a connection that breaks says nothing about TLS. */
export function outageError(error: unknown, settings: KafkaSettings): FleethookError {
  return clusterError(error, { ...settings, tls: undefined })
}

/** Turns an error of the client into one sentence that says what went wrong, and a hint that says what to do. */
export function clusterError(error: unknown, settings: KafkaSettings): FleethookError {
  if (error instanceof FleethookError) return error
  const found = new Symptoms(error, settings)
  const [message, hint] =
    problemWithTls(found, settings) ??
    problemWithUser(found, settings) ??
    problemWithRights(found, settings) ??
    problemWithConnection(found, settings) ??
    found.unknown
  return new FleethookError('inbox_unavailable', message, { cause: error, hint })
}

/** What went wrong, and what to do. */
type Diagnosis = readonly [message: string, hint: string]

/** What an error of the client, and all errors in it, say. */
class Symptoms {
  readonly codes: ReadonlySet<string>
  readonly texts: readonly string[]
  /** The brokers, at the beginning of a sentence. */
  readonly them: string

  constructor(error: unknown, { brokers }: KafkaSettings) {
    this.codes = codesOf(error)
    this.texts = [...errorsIn(error)].map(({ message }) => message)
    this.them = brokers.length === 1 ? `The broker ${brokers[0]}` : `The brokers ${brokers.join(', ')}`
  }

  says(text: string): boolean {
    return this.texts.some((line) => line.includes(text))
  }

  code(fits: (code: string) => boolean): string | undefined {
    return [...this.codes].find(fits)
  }

  get unknown(): Diagnosis {
    const protocol = this.code((name) => !name.startsWith('PLT_'))
    return [
      `The cluster failed: ${protocol ?? this.texts[0] ?? 'unknown error'}.`,
      'Look at the log of the brokers. The inbox continues when they work again.',
    ]
  }
}

function problemWithTls(found: Symptoms, { tls }: KafkaSettings): Diagnosis | undefined {
  const { them, codes } = found
  if (found.says('Broker requires TLS')) return [`${them} expect TLS.`, 'Set `tls: true`, or use the port without TLS.']
  const broke = codes.has('ECONNRESET') || found.says('Connection closed') || found.says('timed out')
  const isOfTls = found.says('TLS handshake failed') || found.code((code) => code.startsWith('ERR_SSL')) !== undefined
  if (tls !== undefined && (broke || isOfTls))
    return [
      // What to do about `The brokers … did not finish the TLS handshake`: Is it the TLS port? Do the brokers ask for a client certificate (`tls: {
      // cert, key }`)?
      `${them} did not finish the TLS handshake.`,
      'Is this the port with TLS? If it is, check `sasl`, and whether the brokers ask for a certificate of this client: `tls: { cert, key }`.',
    ]
  const certificate = found.code((code) => untrusted.test(code))
  if (certificate === undefined) return undefined
  return [
    `The certificate of the brokers is not trusted: ${certificate}.`,
    'Pass its certificate authority: `tls: { ca }`.',
  ]
}

function problemWithUser(found: Symptoms, { sasl }: KafkaSettings): Diagnosis | undefined {
  const { them, codes } = found
  if (codes.has('UNSUPPORTED_SASL_MECHANISM'))
    return [`${them} do not offer the SASL mechanism ${sasl?.mechanism}.`, 'Ask which mechanism the cluster uses.']
  if (found.says('provider threw') || found.says('provider should'))
    return [
      'A function of option `sasl` failed.',
      'It must return the user name, the password or the token as text, or a promise of it. The error is in `cause`.',
    ]
  // The client continues after a refused token, and then its next request fails.
  if (sasl?.mechanism === 'OAUTHBEARER' && (codes.has('ILLEGAL_SASL_STATE') || codes.has('SASL_AUTHENTICATION_FAILED')))
    return [`${them} refused the token.`, 'Check `sasl.token`: has it expired, and is it for this cluster?']
  if (codes.has('PLT_KFK_AUTHENTICATION') || codes.has('SASL_AUTHENTICATION_FAILED'))
    return [`${them} refused the user or the password.`, 'Check `sasl.username`, `sasl.password` and `sasl.mechanism`.']
  return undefined
}

function problemWithRights(found: Symptoms, { topic }: KafkaSettings): Diagnosis | undefined {
  const missing = unauthorized.find((code) => found.codes.has(code))
  if (missing !== undefined)
    return [
      `The user may not do what this role needs: ${missing}.`,
      'The page "Several machines" of the docs lists the permissions for topics and for the group.',
    ]
  if (!found.codes.has('UNKNOWN_TOPIC_OR_PARTITION') && !found.says('Unknown topic')) return undefined
  const [named = topic] = found.texts.flatMap((line) => /Unknown topic (\S+)\.$/.exec(line)?.[1] ?? [])
  return [`There is no topic ${named}.`, 'Create the topics: fleethook kafka topics --apply.']
}

function problemWithConnection(found: Symptoms, { sasl }: KafkaSettings): Diagnosis | undefined {
  const { them } = found
  if (found.says('Connection closed')) {
    const hint =
      sasl === undefined
        ? 'They may want `tls` or `sasl`.'
        : 'The client reports a wrong password in the same way. Check `sasl`, and whether the port needs `tls`.'
    // What to do about `The brokers … closed the connection`: They want `tls` or `sasl`, or the password is wrong.
    return [`${them} closed the connection.`, hint]
  }
  const code =
    found.code((name) => /^E[A-Z_]+$/.test(name)) ?? (found.says('timed out') ? 'no answer in time' : undefined)
  if (code === undefined) return undefined
  return [
    // What to do about `The brokers … could not be reached`: The process must reach every broker, not only the brokers you named.
    `${them} could not be reached: ${code}.`,
    'Check `brokers`, and that this machine may connect to each of them.',
  ]
}
