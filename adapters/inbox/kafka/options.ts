import { FleethookError } from '../../../src/base/errors.ts'
import {
  checkOptions,
  isObject,
  milliseconds,
  oneOf,
  required,
  type Rule,
  trueOrFalse,
  wholeNumber,
} from '../../../src/base/options.ts'
import type { InboxFactory } from '../../../src/inbox/inbox.ts'
import { checkMeanwhile, meanwhileRule } from '../meanwhile.ts'

/** TLS of the connection to the brokers. Certificates and keys are PEM text. */
export interface KafkaTls {
  /** The certificate authorities to trust. Default: what the runtime trusts. */
  readonly ca?: string | readonly string[]
  /** The certificate of this client, if the brokers require one. */
  readonly cert?: string
  readonly key?: string
  readonly passphrase?: string
  /** The host name that a broker's certificate must have. Default: the host of the broker. */
  readonly servername?: string
}

/** How to log in to the brokers. Pass a function for a password or token that changes: it is called for every connection. */
export interface KafkaSasl {
  readonly mechanism: 'PLAIN' | 'SCRAM-SHA-256' | 'SCRAM-SHA-512' | 'OAUTHBEARER'
  readonly username?: string | (() => string | Promise<string>)
  readonly password?: string | (() => string | Promise<string>)
  /** For `OAUTHBEARER`. */
  readonly token?: string | (() => string | Promise<string>)
}

/** What {@link kafkaInbox} takes. Only `brokers` is required. */
export interface KafkaInboxOptions {
  /** Some brokers of the cluster, as `host:port`. The others are found through them. */
  readonly brokers: readonly string[]
  /** The topic of the messages. Beside it are `<topic>-dead` and `<topic>-life`. Default `'fleethook'`. */
  readonly topic?: string
  /**
   * The number of partitions that vehicles are spread over. It must be the same in every process. A vehicle keeps its partition as
   * long as this number stays the same, even if the topic gets more partitions. Default 24.
   */
  readonly partitions?: number
  /** `'receive'`: only accepts messages. `'handle'`: only runs handlers. Default `'both'`. */
  readonly role?: 'both' | 'receive' | 'handle'
  /** The consumer group of the handling processes. Default `<topic>-handlers`. */
  readonly groupId?: string
  /** `true`, or for instance `{ ca }`. Default: no TLS. */
  readonly tls?: true | KafkaTls
  /** Default: no login. */
  readonly sasl?: KafkaSasl
  /** How long the brokers may take to confirm a message, in milliseconds. Then it is refused (503), unless `meanwhile` keeps it. Default 10,000. */
  readonly confirmMs?: number
  /** How long a process may finish running handlers before its partitions go to another one, in milliseconds. Default 7,000. */
  readonly quiesceMs?: number
  /**
   * After this time without a heartbeat, another process takes over the partitions of this one, in milliseconds. At least
   * `quiesceMs` plus 3,000. Default 10,000.
   */
  readonly sessionMs?: number
  /** `true` accepts topics on fewer than 3 brokers, or with `min.insync.replicas` below 2. Default `false`. */
  readonly allowWeak?: boolean
  /**
   * A file on this machine, for instance `sqliteInbox({ path })`. It keeps the messages of a partition while the brokers do not confirm one within a
   * second, and they move on by themselves: nothing is refused. Put it on a volume that outlives the process. Default: none.
   */
  readonly meanwhile?: InboxFactory
}

export interface KafkaSettings {
  readonly brokers: readonly string[]
  readonly topic: string
  readonly deadTopic: string
  readonly lifeTopic: string
  readonly partitions: number
  readonly role: 'both' | 'receive' | 'handle'
  readonly groupId: string
  readonly tls: KafkaTls | undefined
  readonly sasl: KafkaSasl | undefined
  readonly confirmMs: number
  readonly quiesceMs: number
  readonly sessionMs: number
  readonly allowWeak: boolean
  readonly meanwhile: InboxFactory | undefined
  readonly clientId: string
}

const address = /^(?:[\w.-]+|\[[\da-fA-F:]+\]):\d{1,5}$/

const addresses: Rule = {
  must: 'must be a list of addresses such as b1:9092',
  accepts: (value) =>
    Array.isArray(value) && value.length > 0 && value.every((one) => typeof one === 'string' && address.test(one)),
}

/** A name that Kafka allows, with room for `-dead`. */
const topicName: Rule = {
  must: 'must be a name of 1 to 200 letters, digits, dots, hyphens and underscores',
  accepts: (value) => typeof value === 'string' && /^[\w.-]{1,200}$/.test(value) && value !== '.' && value !== '..',
}

const groupName: Rule = {
  must: 'must be a name without blanks',
  accepts: (value) => typeof value === 'string' && /^\S+$/.test(value),
}

const tlsOptions: Rule = {
  must: 'must be true, or an object with ca, cert, key, passphrase, servername',
  accepts: (value) =>
    value === true ||
    (isObject(value) &&
      Object.keys(value).every((name) => ['ca', 'cert', 'key', 'passphrase', 'servername'].includes(name))),
  isSecret: true,
}

const credential: Rule = {
  must: 'must be a non-empty text, or a function that returns one',
  accepts: (value) => (typeof value === 'string' && value !== '') || typeof value === 'function',
  isSecret: true,
}

export function readKafkaOptions(options: KafkaInboxOptions): KafkaSettings {
  checkOptions<KafkaInboxOptions>('kafkaInbox', options, {
    brokers: required(addresses, "Give some brokers of the cluster: ['b1:9092', 'b2:9092']."),
    topic: topicName,
    partitions: wholeNumber(1, 10_000),
    role: oneOf('both', 'receive', 'handle'),
    groupId: groupName,
    tls: tlsOptions,
    sasl: {
      mechanism: required(oneOf('PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512', 'OAUTHBEARER')),
      username: credential,
      password: credential,
      token: credential,
    },
    confirmMs: milliseconds(100),
    quiesceMs: milliseconds(0),
    sessionMs: milliseconds(3_000),
    allowWeak: trueOrFalse,
    meanwhile: meanwhileRule,
  })
  const {
    brokers,
    topic = 'fleethook',
    partitions = 24,
    role = 'both',
    tls,
    sasl,
    meanwhile,
    allowWeak = false,
  } = options
  const { groupId = `${topic}-handlers`, quiesceMs = 7_000, sessionMs = Math.max(10_000, quiesceMs + 3_000) } = options
  const { confirmMs = 10_000 } = options
  if (sessionMs < quiesceMs + 3_000) {
    throw new FleethookError(
      'option_invalid',
      `Option \`sessionMs\` of kafkaInbox is ${sessionMs}, and a process that finishes its handlers sends no heartbeat for up to \`quiesceMs\` (${quiesceMs}).`,
      { hint: `Set sessionMs to at least ${quiesceMs + 3_000}, or make quiesceMs smaller.` },
    )
  }
  checkLogin(sasl)
  checkMeanwhile('kafkaInbox', role, meanwhile)
  return {
    brokers,
    topic,
    partitions,
    role,
    groupId,
    confirmMs,
    quiesceMs,
    sessionMs,
    allowWeak,
    meanwhile,
    sasl,
    deadTopic: `${topic}-dead`,
    lifeTopic: `${topic}-life`,
    tls: tls === true ? {} : tls,
    clientId: `fleethook-${role}`,
  }
}

function checkLogin(sasl: KafkaSasl | undefined): void {
  if (sasl === undefined) return
  const needed = sasl.mechanism === 'OAUTHBEARER' ? (['token'] as const) : (['username', 'password'] as const)
  for (const name of needed) {
    if (sasl[name] !== undefined) continue
    throw new FleethookError(
      'option_invalid',
      `Option \`sasl.${name}\` of kafkaInbox is missing, and ${sasl.mechanism} needs it.`,
      { hint: 'Is the environment variable set?' },
    )
  }
}
