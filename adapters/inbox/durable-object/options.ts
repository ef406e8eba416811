import { FleethookError } from '../../../src/base/errors.ts'
import type { Retention } from '../../../src/inbox/retention.ts'
import type { ObjectNamespace } from './platform.ts'
import type { Keeping } from './room.ts'

/** What {@link durableObjectInbox} takes. Only `objects` is required. */
export interface DurableObjectInboxOptions<Bindings> {
  /** Where the objects are: `(env) => env.FLEETHOOK_INBOX`. */
  readonly objects: (env: Bindings) => ObjectNamespace
  /**
   * How many objects share the vehicles. Default 4: one takes some hundred messages a second. Raise it while nothing waits:
   * a vehicle can move to another object, whose messages know nothing of those that wait in the old one.
   */
  readonly shards?: number
  /**
   * What the messages of one object may take in all, in bytes. When that is used up, and no settled message is left to drop,
   * the object is full. Default 1 GiB; the platform allows 10 GB.
   */
  readonly maxBytes?: number
  /**
   * What an object keeps for replays: dead letters by default 30 days and 64 MiB, settled messages not at all (`forMs: 0`),
   * since keeping one costs a row written more.
   */
  readonly retention?: { readonly settled?: Retention; readonly dead?: Retention }
}

/** Options with every default filled in. */
export interface DurableObjectSettings<Bindings> {
  readonly objects: (env: Bindings) => ObjectNamespace
  readonly shards: number
  readonly keeping: Omit<Keeping, 'pendingMessages' | 'pendingBytes'>
}

const mebibyte = 1_048_576
const dayMs = 86_400_000

/** Checks options and fills in the defaults. Throws a `FleethookError` that names the option, what was given and what to do. */
export function readObjectOptions<Bindings>(
  options: DurableObjectInboxOptions<Bindings>,
): DurableObjectSettings<Bindings> {
  only(options, '', ['objects', 'shards', 'maxBytes', 'retention'])
  const { objects, shards = 4, maxBytes = 1024 * mebibyte, retention = {} } = options
  if (typeof objects !== 'function') {
    throw invalid(
      '`objects` of durableObjectInbox must be a function of env',
      objects,
      'Give (env) => env.FLEETHOOK_INBOX.',
    )
  }
  atLeast('shards', shards, 1)
  atLeast('maxBytes', maxBytes, 1)
  only(retention, 'retention.', ['settled', 'dead'])
  const settled = keptFor('settled', retention.settled, { forMs: 0, maxBytes: 64 * mebibyte })
  const dead = keptFor('dead', retention.dead, { forMs: 30 * dayMs, maxBytes: 64 * mebibyte })
  return { objects, shards, keeping: { maxBytes, settled, dead } }
}

function keptFor(name: string, given: Retention = {}, defaults: Required<Retention>): Required<Retention> {
  const option = `retention.${name}`
  only(given, `${option}.`, ['forMs', 'maxBytes'])
  const { forMs = defaults.forMs, maxBytes = defaults.maxBytes } = given
  atLeast(`${option}.forMs`, forMs, 0)
  atLeast(`${option}.maxBytes`, maxBytes, 0)
  return { forMs, maxBytes }
}

function only(given: unknown, prefix: string, names: readonly string[]): void {
  if (typeof given !== 'object' || given === null) {
    throw invalid(
      prefix === '' ? 'durableObjectInbox takes an object and' : `\`${prefix.slice(0, -1)}\` must be an object`,
      given,
    )
  }
  const unknown = Object.keys(given).find((key) => !names.includes(key))
  if (unknown === undefined) return
  throw new FleethookError('option_invalid', `durableObjectInbox has no option \`${prefix}${unknown}\`.`, {
    hint: `The options here are ${names.join(', ')}.`,
  })
}

function atLeast(name: string, value: unknown, least: number): void {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= least) return
  throw invalid(`\`${name}\` of durableObjectInbox must be a whole number from ${least} up`, value)
}

function invalid(must: string, given: unknown, hint?: string): FleethookError {
  const shown = typeof given === 'number' ? given : `a ${typeof given}`
  return new FleethookError(
    'option_invalid',
    `Option ${must} and was given ${shown}.`,
    hint === undefined ? {} : { hint },
  )
}
