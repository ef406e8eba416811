import { checkOptions, defined, required, type Rule, trueOrFalse, wholeNumber } from '../../../src/base/options.ts'
import type { Retention } from '../../../src/inbox/inbox.ts'

/** What {@link sqliteInbox} takes. Only `path` is required. */
export interface SqliteInboxOptions {
  /** The file, on a local disk. The inbox creates it and its folders when they are missing. Only its owner can read it. */
  readonly path: string
  /**
   * Runs SQLite in a thread of its own, so that a slow disk does not stall the event loop. For Node and Bun. Default `false`.
   * docs/inbox.md shows what it costs and what it gains.
   */
  readonly thread?: boolean
  /**
   * The largest size of the file with its journal, in bytes. At least 8 MiB. At this size the inbox drops settled messages,
   * and refuses new ones when there is nothing left to drop. Default: no limit but the disk.
   */
  readonly maxBytes?: number
  /** What is kept for replays. Default: a day and 256 MiB of settled messages, 30 days and 1 GiB of dead letters. */
  readonly retention?: { readonly settled?: Retention; readonly dead?: Retention }
  /** How long to wait while another process has the file, in milliseconds. Default 30,000; 0 fails at once. */
  readonly waitMs?: number
}

export interface FileSettings {
  readonly path: string
  readonly maxBytes: number
  readonly settled: Required<Retention>
  readonly dead: Required<Retention>
  /** An operator looks into the file of a stopped receiver, so nothing is written about a start, a stop or gaps. */
  readonly isVisit?: boolean
}

export interface SqliteSettings extends FileSettings {
  readonly thread: boolean
  readonly waitMs: number
}

const mebibyte = 1_048_576
const dayMs = 86_400_000

export function readSqliteOptions(options: SqliteInboxOptions): SqliteSettings {
  const retentionRules = { forMs: orUnlimited(wholeNumber(0)), maxBytes: orUnlimited(wholeNumber(0)) }
  checkOptions<SqliteInboxOptions>('sqliteInbox', options, {
    path: required(aFile),
    thread: trueOrFalse,
    maxBytes: orUnlimited(wholeNumber(8 * mebibyte)),
    retention: { settled: retentionRules, dead: retentionRules },
    waitMs: orUnlimited(wholeNumber(0)),
  })
  const { path, thread = false, maxBytes = Infinity, retention = {}, waitMs = 30_000 } = options
  return {
    path,
    thread,
    maxBytes,
    waitMs,
    settled: { forMs: dayMs, maxBytes: 256 * mebibyte, ...defined(retention.settled) },
    dead: { forMs: 30 * dayMs, maxBytes: 1024 * mebibyte, ...defined(retention.dead) },
  }
}

const aFile: Rule = {
  must: 'must be the path of a file',
  accepts: (path) => typeof path === 'string' && path !== '' && path !== ':memory:' && !path.startsWith('file:'),
  hint: "Give a path, for instance 'data/inbox.db'. To keep messages in memory, use memoryInbox().",
}

function orUnlimited(rule: Rule): Rule {
  return {
    must: `${rule.must} or Infinity (no limit)`,
    accepts: (value) => value === Infinity || rule.accepts(value),
  }
}
