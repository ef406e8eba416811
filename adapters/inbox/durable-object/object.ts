import { pause } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import { pageBytes } from '../../../src/base/pages.ts'
import { detachedContext, type RequestScope } from '../../../src/hosting/execution-context.ts'
import type { Refusal } from '../../../src/http/answers.ts'
import {
  type Archive,
  archiveOf,
  type InboxMessage,
  type KeptGap,
  type ListedMessage,
} from '../../../src/inbox/inbox.ts'
import type { SentVehicle } from '../../../src/inbox/vehicle-store.ts'
import type { Forgotten, MessageSelection } from '../../../src/observe/dead-letters.ts'
import type { Failing } from '../../../src/observe/stats.ts'
import type { KeptVehicles } from '../../../src/parts/vehicles.ts'
import { type Behind, Intake, type ReceiverParts } from '../../../src/receiver/intake.ts'
import type { Settings } from '../../../src/receiver/options.ts'
import type { LocalVehicles, VehiclesStats } from '../../../src/vehicles/vehicles.ts'
import { ObjectInbox } from './object-inbox.ts'
import type { ObjectOptions } from './places.ts'
import type { InboxObject, InboxObjectClass, ObjectState, ObjectStorage } from './platform.ts'
import { createRestingClock, type RestingClock } from './resting-clock.ts'
import { type ObjectVehicles, reportOf } from './vehicles.ts'

/** The messages that a call is about. Their times arrive as JSON text. */
export type Which = string | (MessageSelection & { readonly dryRun?: boolean | undefined })

interface ArchiveQuestion {
  readonly what: Parameters<Archive['list']>[0]
  readonly which: Parameters<Archive['list']>[1]
}

/** What a Worker asks an object, of its receiver or of a branch. */
export interface Question<Asked extends keyof Questions = keyof Questions> {
  readonly question: Asked
  readonly about: Parameters<Questions[Asked]>[0]
  /** The name of the branch. Left out: the receiver. */
  readonly branch?: string | undefined
}

export type Questions = Omit<ReaderInObject, 'intake'>

/** The answer of an object: a value, or the error for the caller in the Worker. */
export type Reply =
  | { readonly value?: unknown }
  | { readonly error: Pick<FleethookError, 'code' | 'message'> & { readonly hint?: string | undefined } }

/** Creates the class for the binding. The platform needs only these two methods. */
export function createInboxObject(
  parts: ReceiverParts,
  keeping: Omit<ObjectOptions, 'kept'>,
  useEnv: (env: unknown) => void,
): InboxObjectClass {
  return class FleethookInbox implements InboxObject {
    readonly #shard: Shard

    constructor({ storage }: ObjectState, env: unknown) {
      // Handlers in this object can then call the other objects.
      useEnv(env)
      this.#shard = new Shard(parts, keeping, storage, env)
    }

    async fetch(request: Request): Promise<Response> {
      return Response.json(await this.#shard.reply(await request.json()))
    }

    alarm(): Promise<void> {
      return this.#shard.alarm()
    }
  }
}

/** The alarm is only for messages that an object leaves when it ends. One for each would cost a third of a message. */
const lookAfterMs = 5_000

/** How long one alarm waits for handlers. The next alarm goes on. The platform would end an alarm after 15 minutes. */
const alarmMs = 60_000

/** When nothing has been handed out for this time, every message that waits is taken to rest. */
const quietMs = 50

/** The receiver in an object, or a branch. */
class ReaderInObject {
  readonly intake: Intake
  readonly #scope: RequestScope
  readonly #clock: RestingClock
  /** The others in this object. */
  readonly #branches: () => Iterable<ReaderInObject>

  constructor(
    intake: Intake,
    scope: RequestScope,
    clock: RestingClock,
    branches: () => Iterable<ReaderInObject> = () => [],
  ) {
    this.intake = intake
    this.#scope = scope
    this.#clock = clock
    this.#branches = branches
  }

  async put(messages: readonly InboxMessage[]): Promise<Refusal | undefined> {
    const { intake } = this
    this.#clock.wake()
    if (!intake.readiness.isReady && !(await intake.readiness.becomeReady())) return { error: 'inbox_unavailable' }
    return intake.put(
      messages.map((message) => intake.parts.receipts.arrived(message)),
      this.#scope,
    )
  }

  /** Messages of its vehicles may be missing. The `gap` event goes to another object, or comes with a later `put`. */
  async noteGaps(gaps: readonly KeptGap[]): Promise<void> {
    this.#clock.wake()
    for (const { intake } of [this, ...this.#branches()]) for (const gap of gaps) await intake.ownVehicles?.noteGap(gap)
  }

  async list({ what, which }: ArchiveQuestion): Promise<readonly ListedMessage[]> {
    await this.intake.readiness.open()
    return (await archiveOf(this.intake.inbox)?.list(what, which)) ?? []
  }

  replayDead(which: Which): Promise<number> {
    return this.intake.operator.deadLetters.replay(withDates(which), { env: this.#scope.env })
  }

  discardDead(which: Which): Promise<number> {
    return this.intake.operator.deadLetters.discard(withDates(which))
  }

  async vehicle(vin: string): Promise<SentVehicle | undefined> {
    const found = await this.#vehicles().get(vin)
    return found && reportOf(found)
  }

  async vehicles({
    after,
    limit,
  }: {
    readonly after?: string | undefined
    readonly limit: number
  }): Promise<readonly SentVehicle[]> {
    const found: SentVehicle[] = []
    let bytes = 0
    for await (const vehicle of this.#vehicles().list({ after })) {
      const report = reportOf(vehicle)
      found.push(report)
      bytes += report.text.length
      if (found.length === limit || bytes >= pageBytes) break
    }
    return found
  }

  forgetVehicle(vin: string): Promise<boolean> {
    return this.#vehicles().forget(vin)
  }

  async failing(_: undefined): Promise<Failing> {
    await this.intake.readiness.open()
    return this.intake.operator.failing()
  }

  forget({ vin, dryRun }: { readonly vin: string; readonly dryRun: boolean }): Promise<Forgotten> {
    return this.intake.operator.forget(vin, { dryRun })
  }

  countVehicles(_: undefined): Promise<VehiclesStats> {
    return this.#vehicles().stats()
  }

  #vehicles(): LocalVehicles {
    const { ownVehicles } = this.intake
    if (ownVehicles !== undefined) return ownVehicles
    throw new FleethookError(
      'option_invalid',
      'This object keeps no state of vehicles: its receiver has no part `vehicles`.',
    )
  }
}

/** When silent vehicles of a reader were last looked for, and are to be looked for again. */
interface Silent {
  readonly forgets: NonNullable<KeptVehicles['forgets']>
  readonly vehicles: ObjectVehicles
  atMs: number
}

/** One object: it keeps the messages of some vehicles and runs their handlers. */
class Shard {
  readonly #parts: ReceiverParts
  readonly #clock: RestingClock
  readonly #storage: ObjectStorage
  readonly #scope: RequestScope
  readonly #inbox: ObjectInbox
  readonly #receiver: ReaderInObject
  readonly #branches = new Map<string, ReaderInObject>()
  readonly #silent: Silent[] = []
  /** The time of the alarm that is set, as far as this object knows. */
  #alarmAt: number | undefined
  #isInAlarm = false

  constructor(parts: ReceiverParts, keeping: Omit<ObjectOptions, 'kept'>, storage: ObjectStorage, env: unknown) {
    const clock = createRestingClock(parts.settings.clock)
    const scope: RequestScope = { env, context: detachedContext }
    const kept = (): void => this.#lookAfter(clock.now() + lookAfterMs)
    const behind: Behind = { byName: new Map(), branches: undefined, opened: undefined }
    const made: { inbox?: ObjectInbox } = {}
    const intake = new Intake(
      { ...parts, settings: inObject(parts, clock), behind },
      (settings) => (made.inbox = new ObjectInbox(storage, { ...keeping, kept }, settings)),
      scope,
    )
    const { inbox } = made
    if (inbox === undefined) throw new Error('An intake makes its inbox.')
    this.#parts = parts
    this.#clock = clock
    this.#storage = storage
    this.#scope = scope
    this.#inbox = inbox
    this.#receiver = new ReaderInObject(intake, scope, clock, () => this.#branches.values())
    this.#keepSilent(parts, inbox.states)
    behind.branches = parts.behind.branches?.behind(intake, (name, its) => {
      const own = { ...its, settings: inObject(its, clock) }
      const branch = new Intake(own, (settings) => inbox.reader(name, settings), scope)
      this.#branches.set(name, new ReaderInObject(branch, scope, clock))
      this.#keepSilent(its, inbox.readers.get(name)?.states)
      return branch
    })
  }

  /** Only a Worker with the binding can send requests to an object, and it runs this same module. */
  async reply({ question, about, branch }: Question): Promise<Reply> {
    try {
      const questions = branch === undefined ? this.#receiver : this.#branches.get(branch)
      if (questions === undefined)
        throw new FleethookError('option_invalid', `The receiver of this object has no branch \`${branch}\`.`)
      // A branch opens with its receiver, which has the object.
      if (branch !== undefined) await this.#receiver.intake.readiness.whenRecovered()
      return { value: await questions[question](about as never) }
    } catch (error) {
      if (!(error instanceof FleethookError)) throw error
      const { code, message, hint } = error
      return { error: { code, message, hint } }
    }
  }

  #keepSilent({ vehicles: part }: ReceiverParts, vehicles: ObjectVehicles | undefined): void {
    const forgets = part?.forgets
    if (forgets !== undefined && vehicles !== undefined) this.#silent.push({ forgets, vehicles, atMs: 0 })
  }

  /** Forgets silent vehicles. Resolves to the time at which the next one may have to go. */
  async #forgetSilent(): Promise<number> {
    const now = this.#clock.now()
    let next = Infinity
    for (const silent of this.#silent) {
      const { forgets, vehicles } = silent
      if (now >= silent.atMs) {
        await vehicles.forgetUnseen(now - forgets.afterMs)
        const oldestMs = vehicles.oldestSeenMs()
        if (oldestMs === undefined) continue
        silent.atMs = Math.max(oldestMs + forgets.afterMs + 1, now + forgets.everyMs)
      }
      next = Math.min(next, silent.atMs)
    }
    return next
  }

  get #intakes(): readonly Intake[] {
    return [this.#receiver, ...this.#branches.values()].map(({ intake }) => intake)
  }

  /** Goes on with the messages that wait, until all are done or rest. */
  async alarm(): Promise<void> {
    const inbox = this.#inbox
    const clock = this.#clock
    this.#alarmAt = undefined
    this.#isInAlarm = true
    let restsUntil: number | undefined
    let forgetAtMs = Infinity
    try {
      clock.wake()
      // Rejects when the inbox cannot be opened. The platform then tries the alarm again.
      await this.#receiver.intake.readiness.open()
      // When the object ends during this alarm, the platform tries the same one again after 2, 4, 8 seconds and so on. Another one is not delayed.
      if (inbox.isWaiting) this.#setAlarm(clock.now() + lookAfterMs)
      // Also when they have read the timers of vehicles, and what branches have left.
      for (const intake of this.#intakes)
        if (intake !== this.#receiver.intake || intake.states !== undefined) await intake.readiness.becomeReady()
      // Nothing else wakes the object for them.
      for (const { gaps } of this.#intakes) if (gaps.open.size > 0) gaps.start(this.#scope)
      if (await this.#isQuiet()) restsUntil = clock.sleep()
      inbox.sweep(clock.now())
      forgetAtMs = await this.#forgetSilent()
    } finally {
      this.#isInAlarm = false
      const wasSet = this.#alarmAt !== undefined
      this.#alarmAt = undefined
      if (inbox.isWaiting) this.#lookAfter(restsUntil ?? clock.now() + lookAfterMs)
      else
        this.#lookAfter(Math.min(forgetAtMs, ...this.#intakes.map(({ states }) => states?.timers.nextMs() ?? Infinity)))
      if (wasSet && this.#alarmAt === undefined)
        this.#storage.deleteAlarm().catch((error: unknown) => this.#parts.reports.inboxFailed(error))
    }
  }

  /** Sets an alarm for the messages that wait. While an alarm runs, it sets the next one itself when it ends. */
  #lookAfter(atMs: number): void {
    if (this.#isInAlarm || atMs === Infinity || (this.#alarmAt !== undefined && this.#alarmAt <= atMs)) return
    this.#setAlarm(atMs)
  }

  #setAlarm(atMs: number): void {
    this.#alarmAt = atMs
    this.#storage.setAlarm(atMs).catch((error: unknown) => {
      // No alarm is set now. The next message sets one.
      this.#alarmAt = undefined
      this.#parts.reports.inboxFailed(error)
    })
  }

  /** Resolves to true once nothing runs and nothing was handed out since the last look, and to false when the time of the alarm is over. */
  async #isQuiet(): Promise<boolean> {
    const endsAt = this.#clock.now() + alarmMs
    for (let before = this.#inbox.activity(); ;) {
      await pause(this.#parts.settings.clock, quietMs)
      const now = this.#inbox.activity()
      if (now.handedOut === 0 && now.claims === before.claims) return true
      if (this.#clock.now() >= endsAt) return false
      before = now
    }
  }
}

/** The settings of a receiver, or of a branch, in an object. */
const inObject = ({ settings }: ReceiverParts, clock: RestingClock): Settings => ({ ...settings, ack: 'stored', clock })

function withDates(which: Which): Which {
  if (typeof which === 'string') return which
  const { from, to, ...others } = which
  return { ...others, from: from && new Date(from), to: to && new Date(to) }
}
