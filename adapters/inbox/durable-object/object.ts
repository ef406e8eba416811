import { pause } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import { guardedLog } from '../../../src/base/log.ts'
import { detachedContext, type RequestScope } from '../../../src/hosting/execution-context.ts'
import type { Refusal } from '../../../src/http/answers.ts'
import type { Forgotten, MessageSelection } from '../../../src/observe/dead-letters.ts'
import type { Archive, InboxMessage, KeptGap, ListedMessage } from '../../../src/inbox/inbox.ts'
import type { Failing } from '../../../src/observe/stats.ts'
import { pageBytes } from '../../../src/base/pages.ts'
import type { SentVehicle } from '../../../src/inbox/vehicle-store.ts'
import { Intake, type ReceiverParts } from '../../../src/receiver/intake.ts'
import type { LocalVehicles, VehiclesStats } from '../../../src/vehicles/vehicles.ts'
import { createObjectInbox, type ObjectInbox } from './object-inbox.ts'
import type { InboxObject, InboxObjectClass, ObjectState, ObjectStorage } from './platform.ts'
import { createRestingClock, type RestingClock } from './resting-clock.ts'
import type { Keeping } from './room.ts'
import { reportOf } from './vehicles.ts'

/** The messages that a call is about. Their times arrive as JSON text. */
export type Which = string | (MessageSelection & { readonly dryRun?: boolean | undefined })

interface ArchiveQuestion {
  readonly what: Parameters<Archive['list']>[0]
  readonly which: Parameters<Archive['list']>[1]
}

/** What a Worker asks an object. */
export type Questions = Omit<Shard, 'alarm'>

/** The answer of an object: a value, or the error for the caller in the Worker. */
export type Reply =
  | { readonly value?: unknown }
  | { readonly error: Pick<FleethookError, 'code' | 'message'> & { readonly hint?: string | undefined } }

/** Creates the class for the binding. The platform needs only these two methods. */
export function createInboxObject(
  parts: ReceiverParts,
  keeping: Keeping,
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
      return Response.json(await reply(this.#shard, request))
    }

    alarm(): Promise<void> {
      return this.#shard.alarm()
    }
  }
}

/** Only a Worker with the binding can send requests to an object, and it runs this same module. */
async function reply(questions: Questions, request: Request): Promise<Reply> {
  const { question, about }: { question: keyof Questions; about: never } = await request.json()
  try {
    return { value: await questions[question](about) }
  } catch (error) {
    if (!(error instanceof FleethookError)) throw error
    const { code, message, hint } = error
    return { error: { code, message, hint } }
  }
}

/** The alarm is only for messages that an object leaves when it ends. One for each would cost a third of a message. */
const lookAfterMs = 5_000

/** How long one alarm waits for handlers. The next alarm goes on. The platform would end an alarm after 15 minutes. */
const alarmMs = 60_000

/** When nothing has been handed out for this time, every message that waits is taken to rest. */
const quietMs = 50

/** One object: it keeps the messages of some vehicles and runs their handlers. */
class Shard {
  readonly #parts: ReceiverParts
  readonly #clock: RestingClock
  readonly #storage: ObjectStorage
  readonly #scope: RequestScope
  readonly #inbox: ObjectInbox
  readonly #intake: Intake
  /** The time of the alarm that is set, as far as this object knows. */
  #alarmAt: number | undefined
  #isInAlarm = false
  #forgetAtMs = 0

  constructor(parts: ReceiverParts, keeping: Keeping, storage: ObjectStorage, env: unknown) {
    const { settings } = parts
    const clock = createRestingClock(settings.clock)
    const inbox = createObjectInbox(storage, {
      ...keeping,
      keepsVehicles: parts.vehicles !== undefined,
      kept: () => this.#lookAfter(clock.now() + lookAfterMs),
      failed: parts.reports.inboxFailed,
      dropped: (times) => this.#noteDropped(times),
    })
    this.#parts = parts
    this.#clock = clock
    this.#storage = storage
    this.#scope = { env, context: detachedContext }
    this.#inbox = inbox
    const own = { ...settings, ack: 'stored', clock } as const
    this.#intake = new Intake({ ...parts, settings: own }, () => inbox, this.#scope)
  }

  async put(messages: readonly InboxMessage[]): Promise<Refusal | undefined> {
    this.#clock.wake()
    if (!this.#intake.readiness.isReady && !(await this.#intake.readiness.becomeReady()))
      return { error: 'inbox_unavailable' }
    return this.#intake.put(
      messages.map((message) => this.#parts.receipts.arrived(message)),
      this.#scope,
    )
  }

  /** Messages of its vehicles may be missing. The `gap` event goes to another object, or comes with a later `put`. */
  async noteGaps(gaps: readonly KeptGap[]): Promise<void> {
    this.#clock.wake()
    for (const gap of gaps) await this.#vehicles().noteGap(gap)
  }

  async list({ what, which }: ArchiveQuestion): Promise<readonly ListedMessage[]> {
    await this.#intake.readiness.open()
    return this.#inbox.archive.list(what, which)
  }

  replayDead(which: Which): Promise<number> {
    return this.#intake.operator.deadLetters.replay(withDates(which), { env: this.#scope.env })
  }

  discardDead(which: Which): Promise<number> {
    return this.#intake.operator.deadLetters.discard(withDates(which))
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
    await this.#intake.readiness.open()
    return this.#intake.operator.failing()
  }

  forget({ vin, dryRun }: { readonly vin: string; readonly dryRun: boolean }): Promise<Forgotten> {
    return this.#intake.operator.forget(vin, { dryRun })
  }

  countVehicles(_: undefined): Promise<VehiclesStats> {
    return this.#vehicles().stats()
  }

  #vehicles(): LocalVehicles {
    const { ownVehicles } = this.#intake
    if (ownVehicles !== undefined) return ownVehicles
    throw new FleethookError(
      'option_invalid',
      'This object keeps no state of vehicles: its receiver has no part `vehicles`.',
    )
  }

  /** Forgets silent vehicles. Resolves to the time at which the next one may have to go. */
  async #forgetSilent(): Promise<number | undefined> {
    const forgets = this.#parts.vehicles?.forgets
    const { vehicles } = this.#inbox
    if (forgets === undefined || vehicles === undefined) return undefined
    const now = this.#clock.now()
    if (now < this.#forgetAtMs) return this.#forgetAtMs
    await vehicles.forgetUnseen(now - forgets.afterMs)
    const oldestMs = vehicles.oldestSeenMs()
    if (oldestMs === undefined) return undefined
    return (this.#forgetAtMs = Math.max(oldestMs + forgets.afterMs + 1, now + forgets.everyMs))
  }

  /** Goes on with the messages that wait, until all are done or rest. */
  async alarm(): Promise<void> {
    const inbox = this.#inbox
    const clock = this.#clock
    this.#alarmAt = undefined
    this.#isInAlarm = true
    let restsUntil: number | undefined
    let forgetAtMs: number | undefined
    try {
      clock.wake()
      // Rejects when the inbox cannot be opened. The platform then tries the alarm again.
      await this.#intake.readiness.open()
      // When the object ends during this alarm, the platform tries the same one again after 2, 4, 8 seconds and so on. Another one is not delayed.
      if (inbox.usage().messages > 0) this.#setAlarm(clock.now() + lookAfterMs)
      // Also when it has read the timers of vehicles.
      if (this.#parts.vehicles !== undefined) await this.#intake.readiness.becomeReady()
      if (await this.#isQuiet()) restsUntil = clock.sleep()
      inbox.sweep(clock.now())
      forgetAtMs = await this.#forgetSilent()
    } finally {
      this.#isInAlarm = false
      const wasSet = this.#alarmAt !== undefined
      this.#alarmAt = undefined
      if (inbox.usage().messages > 0) this.#lookAfter(restsUntil ?? clock.now() + lookAfterMs)
      else this.#lookAfter(Math.min(forgetAtMs ?? Infinity, this.#intake.states?.timers.nextMs() ?? Infinity))
      if (wasSet && this.#alarmAt === undefined)
        this.#storage.deleteAlarm().catch((error: unknown) => this.#parts.reports.inboxFailed(error))
    }
  }

  /** Dead letters that were received at these times are deleted. */
  #noteDropped(times: readonly number[]): void {
    const { reports, settings } = this.#parts
    reports.counts.deadLettersDropped += times.length
    const [fromMs, toMs] = [Math.min(...times), Math.max(...times)]
    this.#intake.gaps.note({ reason: 'inbox_expired', fromMs, toMs, missed: times.length })
    guardedLog(settings.log).warn('dead letters were deleted: their retention is over', { deadLetters: times.length })
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

function withDates(which: Which): Which {
  if (typeof which === 'string') return which
  const { from, to, ...others } = which
  return { ...others, from: from && new Date(from), to: to && new Date(to) }
}
