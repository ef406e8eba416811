/**
 * Branches: receivers behind a receiver, so that handlers do not wait for each other.
 *
 * @module
 */
import { FleethookError } from './base/errors.ts'
import { guardedLog, type Log } from './base/log.ts'
import { checkOptions, defined, required, type Rule, type Rules, wholeNumber } from './base/options.ts'
import type { ReceiverPart } from './core/part.ts'
import type { BuiltInFields, FieldCatalogue, FieldName } from './events/fields.ts'
import { DeliveryIds } from './inbox/delivery-id.ts'
import { readersInMemory } from './inbox/memory-readers.ts'
import type { Inbox, InboxFactory } from './inbox/inbox.ts'
import type { VehiclesPart } from './parts/vehicles.ts'
import type { BranchBehind } from './observe/observer.ts'
import { assemble } from './receiver.ts'
import { Branches } from './branch/branches.ts'
import { HandOver } from './branch/hand-over.ts'
import { Following } from './receiver/following.ts'
import { type HostedReceiver, hostedBy } from './receiver/hosted.ts'
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
  /**
   * Only behind an inbox of your own that has one reader: where the branch keeps messages until its own handlers are done. Behind any other inbox, a
   * branch reads the inbox of its receiver.
   */
  readonly inbox?: InboxFactory
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
  const { ids } = front.intake.parts.receipts
  const { receiver: own, hosted } = assemble<Bindings, Fields, KeepsVehicles<Parts>>(
    settings,
    readsOf(front) === undefined ? idsFor(ids, settings.inbox) : ids,
    (host) => new Following(host),
  )
  const whole: object = Object.assign(own, { name: options.name })
  if (readsOf(front) === undefined) handOverTo(front, options.name, own, hosted)
  else {
    // They have the same messages.
    Object.assign(own, { forget: front.intake.operator.forget })
    branchesOf(front).addReader(options.name, own, hosted.intake, front.intake.parts.behind.opened)
  }
  // Whether `vehicles` is there depends on the parts, whose types say the same.
  return whole as Branch<Bindings, Fields, KeepsVehicles<Parts>> & AddedBy<Parts, Fields> // oxlint-disable-line no-unsafe-type-assertion
}

type GivenOptions = Omit<BranchOptions<never>, 'parts'> & { readonly parts?: readonly AnyPart[] }

/** How a branch reads the inbox of the receiver. `undefined`: that can have one reader only. */
function readsOf({ intake }: HostedReceiver): Inbox['reader'] {
  const { inbox } = intake
  return inbox.reader?.bind(inbox)
}

/** The settings of the branch. Throws when its name or its inbox does not fit. */
function settingsOf(front: HostedReceiver, options: GivenOptions): Settings {
  const reads = readsOf(front)
  const { byName } = front.intake.parts.behind
  if (reads !== undefined && options.inbox !== undefined)
    throw new FleethookError('option_invalid', 'A branch reads the inbox of its receiver, and has no option `inbox`.', {
      hint: 'Leave it out. A handler on the branch can write the message elsewhere.',
    })
  const settings = settingsOfBranch(
    front.settings,
    reads === undefined
      ? options
      : { ...options, inbox: (own) => openedWith(front, reads(options.name, { ...own, readersInMemory })) },
    (log) => logOf(options.name, log),
  )
  if (byName.has(options.name))
    throw new FleethookError('option_invalid', `The receiver has a branch \`${options.name}\` already.`, {
      hint: 'Give each branch its own name.',
    })
  if (reads !== undefined && byName.size >= mostBranches)
    throw new FleethookError(
      'option_invalid',
      `An inbox has at most ${mostBranches + 1} readers: the receiver and its branches.`,
      { hint: 'Let one branch call several handlers: each of them is tried by itself.' },
    )
  const problem =
    reads === undefined ? problemOf(front.settings.inbox, settings.inbox, branchesOf(front).places) : undefined
  if (problem !== undefined)
    throw new FleethookError('option_invalid', `Option \`inbox\` of branch ${problem.what}`, problem)
  return settings
}

/** All branches of the receiver. */
function branchesOf(front: HostedReceiver): Branches {
  const { behind } = front.intake.parts
  const known = behind.branches instanceof Branches ? behind.branches : new Branches(front.intake)
  behind.branches = known
  return known
}

/** The branch has an inbox of its own, and the receiver hands each message over. */
function handOverTo(front: HostedReceiver, name: string, own: BranchBehind, hosted: HostedReceiver): void {
  const branches = branchesOf(front)
  const { behind, registry } = front.intake.parts
  const { intake, reports, settings } = hosted
  const handOver = new HandOver(front, hosted)
  const failed = (error: unknown): void => {
    // It was closed while it opened.
    if (!intake.isDraining) reports.inboxFailed(error)
  }
  const place = placeOf(front.settings.inbox, settings.inbox)
  if (place !== undefined) branches.places.add(place)
  branches.add(name, { name, branch: own, failed }, behind.opened)
  registry.addBranch({
    name: `branch ${name}`,
    run: (take) => (typeof take === 'function' ? take() : undefined),
    wants: undefined,
    input: (message) => () => handOver.take(message),
    retry: undefined,
    gather: undefined,
    mark: undefined,
    hasMark: undefined,
    isBranch: true,
  })
}

/** Each message needs a place for each of them, and each step of retention a look at each. */
const mostBranches = 7

/** Who asks a branch opens its receiver first, which has the file. */
function openedWith({ intake }: HostedReceiver, reader: Inbox): Inbox {
  const open = reader.open.bind(reader)
  const openBoth: Inbox['open'] = async (options) => {
    await intake.readiness.open(options)
    return open(options)
  }
  return Object.assign(reader, { open: openBoth })
}

/**
 * For the messages that a branch makes itself. In one process their ids follow the ids of the receiver. Others use numbers that a receiver does not
 * reach within a millisecond.
 */
function idsFor(ids: DeliveryIds, inbox: Settings['inbox']): DeliveryIds {
  return inbox.place === undefined ? ids : new DeliveryIds(1_536)
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

interface Problem {
  readonly what: string
  readonly hint: string
}

/** Why a branch with this inbox would lose messages, or their order. */
function problemOf(front: Settings['inbox'], own: Settings['inbox'], taken: ReadonlySet<string>): Problem | undefined {
  const [before, behind] = [front.place, own.place]
  if (before?.of === 'kafkaInbox' || behind?.of === 'kafkaInbox')
    return {
      what: 'cannot be used with kafkaInbox: another group of the same topic is a branch already.',
      hint: 'Start processes with kafkaInbox({ groupId }) of another name. They read every message of the topic, at their own pace.',
    }
  if (before !== undefined && before.of !== behind?.of)
    return {
      what: `must be a ${before.of}, as for its receiver: the next message of a vehicle can be handled by another process.`,
      hint: "Give it the same pool and a schema of its own: postgresInbox({ db, schema: 'crm' }).",
    }
  if (behind?.takes === false)
    return {
      what: "has the role 'handle', so it takes no messages.",
      hint: "Leave the role out, or use 'receive' where another process handles what is on the branch.",
    }
  const place = placeOf(front, own)
  if (place === undefined) return undefined
  const isFront = place === (before?.name ?? front.file)
  if (!isFront && !taken.has(place)) return undefined
  return {
    what: `is the same place as that of ${isFront ? 'the receiver' : 'another branch'}: ${place}.`,
    hint: 'Give each branch a file, or a schema, of its own.',
  }
}

/** Where a branch keeps messages: a file, or beside a receiver with such an inbox, a schema. */
const placeOf = (front: Settings['inbox'], own: Settings['inbox']): string | undefined =>
  front.place === undefined ? own.file : own.place?.name

const anInbox: Rule = {
  must: 'must be an inbox',
  accepts: (value) => typeof value === 'function',
}

const branchRules: Rules<BranchOptions> = {
  name: required({
    must: 'must be a name of at most 50 letters, digits, - and _',
    accepts: (value) => typeof value === 'string' && /^[\w-]{1,50}$/.test(value),
  }),
  inbox: required(anInbox, "Give it a place of its own, for instance sqliteInbox({ path: 'data/crm.db' })."),
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
  logOf: (log: Log) => Log,
): Settings {
  checkOptions('branch', options, branchRules)
  const { inbox, concurrency, retry, parts, timeoutMs, limits, observe } = options
  const own = readOptions({
    // It has no webhook.
    secret: () => undefined,
    ...defined({ inbox, concurrency, retry, parts, timeoutMs, limits, observe }),
  })
  return { ...own, branch: options.name, format, decode, fields, logErrorText, clock, log: logOf(log) }
}
