import { FleethookError } from '../../../src/base/errors.ts'

/** How long, and how much of, what is no longer pending is kept. The oldest go first. */
export interface KeptFor {
  /** In milliseconds, counted from receipt for settled messages and from their death for dead ones. */
  readonly forMs?: number
  /** All of them together, in bytes. */
  readonly maxBytes?: number
}

/** What {@link sqliteInbox} takes. Only `path` is required. */
export interface SqliteInboxOptions {
  /** The file, on a local disk. It is made when there is none, with its folders, readable for its owner alone. */
  readonly path: string
  /**
   * Works on the file in a thread of its own, so that a slow disk does not stall the event loop: Node and Bun. Default
   * `false`. See docs/inbox.md for what it costs and brings.
   */
  readonly thread?: boolean
  /**
   * How large the file and its journal may become, in bytes: at least 8 MiB. When that is used up, and no settled message is
   * left to drop, the inbox is full. Default: as large as the disk allows.
   */
  readonly maxBytes?: number
  /** What is kept for replays: settled messages by default a day and 256 MiB, dead ones 30 days and 1 GiB. */
  readonly retention?: { readonly settled?: KeptFor; readonly dead?: KeptFor }
  /** How long to wait for another process that has the file, in milliseconds. Default 5,000; 0 refuses at once. */
  readonly waitMs?: number
}

/** What works on the file needs to know. */
export interface FileSettings {
  readonly path: string
  readonly maxBytes: number
  readonly settled: Required<KeptFor>
  readonly dead: Required<KeptFor>
}

export interface SqliteSettings extends FileSettings {
  readonly thread: boolean
  readonly waitMs: number
}

const mebibyte = 1_048_576
const dayMs = 86_400_000
const leastBytes = 8 * mebibyte

/** Checks options and fills in the defaults. Throws a `FleethookError` that names the option, what was given and what to do. */
export function readSqliteOptions(options: SqliteInboxOptions): SqliteSettings {
  const given: unknown = options
  if (typeof given !== 'object' || given === null) {
    throw invalid('sqliteInbox takes an object of options', given, "Call sqliteInbox({ path: 'inbox.db' }).")
  }
  only(given, '', ['path', 'thread', 'maxBytes', 'retention', 'waitMs'])
  const { path, thread = false, maxBytes = Number.MAX_SAFE_INTEGER, retention = {}, waitMs = 5_000 } = options
  if (typeof path !== 'string' || path === '' || path === ':memory:' || path.startsWith('file:')) {
    throw invalid(
      'Option `path` of sqliteInbox must be the path of a file',
      path,
      "A database in memory is gone with the process; for that there is memoryInbox(). Give a path, for instance 'data/inbox.db'.",
    )
  }
  if (typeof thread !== 'boolean') throw invalid('Option `thread` of sqliteInbox must be true or false', thread)
  atLeast('maxBytes', maxBytes, leastBytes)
  atLeast('waitMs', waitMs, 0)
  only(retention, 'retention.', ['settled', 'dead'])
  return {
    path,
    thread,
    maxBytes,
    waitMs,
    settled: keptFor('settled', retention.settled, { forMs: dayMs, maxBytes: 256 * mebibyte }),
    dead: keptFor('dead', retention.dead, { forMs: 30 * dayMs, maxBytes: 1024 * mebibyte }),
  }
}

function keptFor(name: string, given: KeptFor | undefined, defaults: Required<KeptFor>): Required<KeptFor> {
  const option = `retention.${name}`
  const kept = given ?? {}
  only(kept, `${option}.`, ['forMs', 'maxBytes'])
  const { forMs = defaults.forMs, maxBytes = defaults.maxBytes } = kept
  atLeast(`${option}.forMs`, forMs, 0)
  atLeast(`${option}.maxBytes`, maxBytes, 0)
  return { forMs, maxBytes }
}

function only(given: object, prefix: string, names: readonly string[]): void {
  if (typeof given !== 'object' || given === null) {
    throw invalid(`Option \`${prefix.slice(0, -1)}\` of sqliteInbox must be an object`, given)
  }
  const unknown = Object.keys(given).find((key) => !names.includes(key))
  if (unknown === undefined) return
  throw new FleethookError('option_invalid', `sqliteInbox has no option \`${prefix}${unknown}\`.`, {
    hint: `The options here are ${names.join(', ')}.`,
  })
}

function atLeast(name: string, value: unknown, least: number): void {
  // Infinity stands for no limit.
  if (typeof value === 'number' && value >= least && (Number.isSafeInteger(value) || value === Infinity)) return
  throw invalid(`Option \`${name}\` of sqliteInbox must be a whole number from ${least} up`, value)
}

function invalid(must: string, given: unknown, hint?: string): FleethookError {
  const shown = typeof given === 'string' ? `'${given.slice(0, 80)}'` : String(given)
  return new FleethookError('option_invalid', `${must} and was given ${shown}.`, hint === undefined ? {} : { hint })
}
