/**
 * Branches: receivers behind a receiver, so that handlers do not wait for each other.
 *
 * @module
 */
import { FleethookError } from './base/errors.ts'
import { guardedLog, type Log } from './base/log.ts'
import { checkOptions, defined, required, type Rules, wholeNumber } from './base/options.ts'
import type { ReceiverPart } from './core/part.ts'
import type { BuiltInFields, FieldCatalogue, FieldName } from './events/fields.ts'
import { readersInMemory } from './inbox/memory-readers.ts'
import type { Inbox, InboxFactory, InboxHost } from './inbox/inbox.ts'
import type { VehiclesPart } from './parts/vehicles.ts'
import { assemble } from './receiver.ts'
import { Branches } from './branch/branches.ts'
import { Following } from './receiver/following.ts'
import { type HostedReceiver, hostedBy } from './receiver/hosted.ts'
import type { Intake } from './receiver/intake.ts'
import type { AddedBy, Handling, KeepsVehicles, Receiver } from './receiver/interface.ts'
import {
  type AnyPart,
  type Limits,
  readOptions,
  receiverRules,
  type ReceiverOptions,
  type Settings,
} from './receiver/options.ts'

/** What `branch` takes. Only `name` is required. It reads messages as its receiver does: `format`, `decode`, `fields`, the log and the clock are the same. */
export interface BranchOptions<Fields extends FieldCatalogue = FieldCatalogue> extends Pick<
  ReceiverOptions<object, Fields>,
  'concurrency' | 'retry' | 'timeoutMs' | 'observe'
> {
  /** For logs, metrics and operators: `fleethook dead list --branch crm`. At most 50 letters, digits, `-` and `_`. */
  readonly name: string
  /** What the branch can do beside handling, such as `vehicles(…)`. The parts of the receiver know nothing of the branch. */
  readonly parts?: readonly (ReceiverPart | VehiclesPart<FieldName<Fields>>)[]
  /** Default: as the inbox allows. */
  readonly limits?: Partial<Pick<Limits, 'pendingMessages' | 'pendingBytes'>>
}

/** A receiver behind another one, without a webhook: the result of {@link branch}. */
export interface Branch<
  Bindings extends object = object,
  Fields extends FieldCatalogue = BuiltInFields,
  Keeps extends boolean = boolean,
> extends Handling<Bindings, Fields, Keeps> {
  readonly name: string
}

/**
 * A receiver of its own behind `receiver`: its own lanes, retries, circuit breakers, dead letters, replays, counts and parts, but no webhook. It reads the
 * inbox of the receiver: a message is stored once, and each reader has its own places there. So a handler on a branch that fails, is slow, or waits for
 * somebody else's server delays only what is on that branch.
 *
 * Each message reaches the branch at least once, in order per vehicle, with its `delivery.id`. A branch never makes its receiver refuse: what is over
 * the `limits` of the branch, or has to make room on a full disk, is a `gap` of the branch, in its log and its counts. Gaps of the receiver reach its
 * branches; replays do not, because a branch has its own. An inbox has at most 8 readers.
 *
 * `receiver.open` and `receiver.drain` open and drain its branches, and `receiver.forget` erases there, too. `fleethook dead --branch crm` and the
 * other commands for operators ask a branch.
 *
 * Throws `option_invalid` for a wrong option, for a name that is taken, and for an inbox that cannot work there. `docs/branches.md` says which can.
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import { branch } from 'fleethook/branch'
 * import { sqliteInbox } from 'fleethook/inbox/sqlite'
 *
 * const receiver = createReceiver({ secret: process.env.WEBHOOK_SECRET, inbox: sqliteInbox({ path: 'data/inbox.db' }) })
 *   .on('alerts', (event) => console.log('ring', event.vin))
 *
 * branch(receiver, { name: 'crm' })
 *   .on('data', async (event, { signal }) => {
 *     await fetch('data:,stored', { signal }) // the server of the CRM, which may be down
 *   })
 * ```
 */
export function branch<
  Bindings extends object,
  Fields extends FieldCatalogue,
  Keeps extends boolean,
  const Parts extends NonNullable<BranchOptions<Fields>['parts']> = readonly [],
>(
  receiver: Receiver<Bindings, Fields, Keeps>,
  options: BranchOptions<Fields> & { readonly parts?: Parts },
): Branch<Bindings, Fields, KeepsVehicles<Parts>> & AddedBy<Parts, Fields> {
  const front = hostedBy(receiver)
  if (front === undefined)
    throw new FleethookError('option_invalid', 'branch was given something that is not a receiver.', {
      hint: 'Give it what createReceiver returned. A branch has no branches of its own: put them beside each other.',
    })
  const settings = settingsOf(front, options)
  const { operator, parts } = front.intake
  const { behind, receipts } = parts
  const { receiver: own, hosted } = assemble<Bindings, Fields, KeepsVehicles<Parts>>(
    settings,
    receipts.ids,
    (host) => new Following(host),
  )
  // They have the same messages.
  const whole: object = Object.assign(own, { name: options.name, forget: operator.forget })
  branchesOf(front).add(options.name, own, hosted.intake, behind.opened)
  // Whether `vehicles` is there depends on the parts, whose types say the same.
  return whole as Branch<Bindings, Fields, KeepsVehicles<Parts>> & AddedBy<Parts, Fields> // oxlint-disable-line no-unsafe-type-assertion
}

type GivenOptions = Omit<BranchOptions<never>, 'parts'> & { readonly parts?: readonly AnyPart[] }

/** The settings of the branch. Throws when its name does not fit, or when the receiver's inbox has no other readers. */
function settingsOf(front: HostedReceiver, options: GivenOptions): Settings {
  const { intake, settings } = front
  const { inbox, parts } = intake
  const own = settingsOfBranch(settings, options, (host) => readerOf(intake, options.name, host))
  if (inbox.reader === undefined)
    throw new FleethookError('option_invalid', 'The inbox of this receiver has one reader, so it can have no branch.', {
      hint: 'With kafkaInbox, another group of the same topic is a branch already: start processes with kafkaInbox({ groupId }) of another name. They read every message, at their own pace.',
    })
  const { byName } = parts.behind
  if (byName.has(options.name))
    throw new FleethookError('option_invalid', `The receiver has a branch \`${options.name}\` already.`, {
      hint: 'Give each branch its own name.',
    })
  if (byName.size >= mostBranches)
    throw new FleethookError(
      'option_invalid',
      `An inbox has at most ${mostBranches + 1} readers: the receiver and its branches.`,
      { hint: 'Let one branch call several handlers: each of them is tried by itself.' },
    )
  return own
}

/** All branches of the receiver. */
function branchesOf(front: HostedReceiver): Branches {
  const { behind } = front.intake.parts
  const known = behind.branches instanceof Branches ? behind.branches : new Branches(front.intake)
  behind.branches = known
  return known
}

/** Each message needs a place for each of them, and each step of retention a look at each. */
const mostBranches = 7

/** The branch as a reader of the receiver's inbox. Who asks a branch opens its receiver first, which has the messages. */
function readerOf(front: Intake, name: string, host: InboxHost): Inbox {
  const { inbox, readiness } = front
  const reader = inbox.reader?.(name, { ...host, readersInMemory })
  if (reader === undefined) throw new Error('Its receiver has been asked for it.')
  const open = reader.open.bind(reader)
  const openBoth: Inbox['open'] = async (options) => {
    await readiness.open(options)
    return open(options)
  }
  return Object.assign(reader, { open: openBoth })
}

/** The same log, and each line says which branch it is about. */
function logOf(name: string, given: Log): Log {
  const log = guardedLog(given)
  const say =
    (level: keyof Log) =>
    (message: string, details: Record<string, unknown> = {}): void =>
      log[level](message, { branch: name, ...details })
  return { debug: say('debug'), info: say('info'), warn: say('warn'), error: say('error') }
}

const branchRules: Rules<BranchOptions> = {
  name: required({
    must: 'must be a name of at most 50 letters, digits, - and _',
    accepts: (value) => typeof value === 'string' && /^[\w-]{1,50}$/.test(value),
  }),
  concurrency: receiverRules.concurrency,
  retry: receiverRules.retry,
  parts: receiverRules.parts,
  timeoutMs: receiverRules.timeoutMs,
  limits: { pendingMessages: wholeNumber(1), pendingBytes: wholeNumber(1) },
  observe: receiverRules.observe,
}

/** Checks the options of a branch. The rest is as with the receiver in front. */
function settingsOfBranch(
  { format, decode, fields, logErrorText, clock, log }: Settings,
  options: GivenOptions,
  inbox: InboxFactory,
): Settings {
  checkOptions('branch', options, branchRules)
  const { concurrency, retry, parts, timeoutMs, limits, observe } = options
  const own = readOptions({
    // It has no webhook.
    secret: () => undefined,
    ...defined({ inbox, concurrency, retry, parts, timeoutMs, limits, observe }),
  })
  return { ...own, branch: options.name, format, decode, fields, logErrorText, clock, log: logOf(options.name, log) }
}
