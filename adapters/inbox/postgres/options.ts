import {
  checkOptions,
  milliseconds,
  oneOf,
  required,
  type Rule,
  trueOrFalse,
  withMethods,
  wholeNumber,
} from '../../../src/base/options.ts'
import type { InboxFactory, Retention } from '../../../src/inbox/inbox.ts'
import { checkMeanwhile, meanwhileRule } from '../meanwhile.ts'
import type { Role } from '../shared-inbox.ts'
import type { PostgresClient } from './client.ts'

/** What {@link postgresInbox} takes. Only `db` is required. */
export interface PostgresInboxOptions {
  /** A pool of its own, of about 3 connections: `new pg.Pool({ connectionString, allowExitOnIdle: true, max: 3 })`. */
  readonly db: PostgresClient
  /** `'receive'`: only accepts messages. `'handle'`: only runs handlers. Default `'both'`. */
  readonly role?: Role
  /**
   * A file on this machine, for instance `sqliteInbox({ path })`. It keeps messages while Postgres does not take them within a second, and they move on
   * by themselves: nothing is refused. Put it on a volume that outlives the process. Default: none.
   */
  readonly meanwhile?: InboxFactory
  /** The schema of the tables. All processes of one application share it. A second application in this database needs another. Default `'fleethook'`. */
  readonly schema?: string
  /** How long Postgres may take to commit a message, in milliseconds. Then it is refused (503), unless `meanwhile` keeps it. Default 10,000. */
  readonly confirmMs?: number
  /** After this time without a sign of life, other processes take over the vehicles of this one, in milliseconds. Default 10,000. */
  readonly leaseMs?: number
  /** The longest pause between two looks for new messages, in milliseconds. Default 250. */
  readonly idleMs?: number
  /** How long handled messages are kept for replays, in milliseconds. Default a day. */
  readonly keepForMs?: number
  /** How long dead letters are kept, from the time they were given up. Default 30 days. */
  readonly retention?: { readonly dead?: Pick<Retention, 'forMs'> }
  /** `true` accepts a server that can lose what it committed: `fsync` or `synchronous_commit` is off. Default `false`. */
  readonly allowWeak?: boolean
}

/** Options with every default filled in. */
export interface PostgresSettings extends Required<Omit<PostgresInboxOptions, 'retention' | 'meanwhile'>> {
  readonly meanwhile: InboxFactory | undefined
  readonly deadForMs: number
}

export const schemaName: Rule = {
  must: 'must be a name of at most 50 small letters, digits and underscores that begins with a letter',
  accepts: (value) => typeof value === 'string' && /^[a-z][\d_a-z]{0,49}$/.test(value),
}

/** Checks the options and fills in the defaults. Throws `option_invalid`. */
export function readPostgresOptions(options: PostgresInboxOptions): PostgresSettings {
  checkOptions<PostgresInboxOptions>('postgresInbox', options, {
    db: required(
      { ...withMethods('query'), isSecret: true },
      'For instance db: new pg.Pool({ connectionString, allowExitOnIdle: true, max: 3 }).',
    ),
    role: oneOf('both', 'receive', 'handle'),
    meanwhile: meanwhileRule,
    schema: schemaName,
    confirmMs: milliseconds(100),
    leaseMs: milliseconds(1_000),
    idleMs: wholeNumber(1, 60_000),
    keepForMs: wholeNumber(0),
    retention: { dead: { forMs: wholeNumber(0) } },
    allowWeak: trueOrFalse,
  })
  const { db, role = 'both', schema = 'fleethook', confirmMs = 10_000, leaseMs = 10_000, allowWeak = false } = options
  const { meanwhile, idleMs = 250, keepForMs = 86_400_000, retention = {} } = options
  const deadForMs = retention.dead?.forMs ?? 30 * 86_400_000
  checkMeanwhile('postgresInbox', role, meanwhile)
  return { db, role, meanwhile, schema, confirmMs, leaseMs, idleMs, keepForMs, deadForMs, allowWeak }
}
