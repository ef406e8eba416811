import type { BackendParts } from '../../../src/backend/backend.ts'
import { LocalBackend } from '../../../src/backend/local.ts'
import type { Clock } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import type { Surroundings } from '../../../src/dispatch/work.ts'
import { detachedContext } from '../../../src/hosting/execution-context.ts'
import type { Refusal } from '../../../src/http/answers.ts'
import type { MessageSelection, ReplaySelection } from '../../../src/inbox/dead-letters.ts'
import type { DeadLetter, InboxMessage, KeptGap, ListedMessage, Listing, Selection } from '../../../src/inbox/inbox.ts'
import type { FleetVehicles, VehiclesStats } from '../../../src/vehicles/vehicles.ts'
import { createObjectInbox, type ObjectInbox } from './object-inbox.ts'
import type { InboxObject, InboxObjectClass, ObjectState, ObjectStorage } from './platform.ts'
import { createRestingClock, type RestingClock } from './resting-clock.ts'
import type { Keeping } from './room.ts'
import { reportOf, type SentVehicle } from './vehicles.ts'

/** Which messages a call is about. Its times arrive as JSON text. */
export type Which = string | (MessageSelection & { readonly dryRun?: boolean | undefined })

/** A longest silence is looked for at most this often, in milliseconds, because that reads every row. */
const forgetMs = 3_600_000

/** What a Worker asks an object. */
export interface Questions {
  put(messages: readonly InboxMessage[]): Promise<Refusal | undefined>
  /** Messages of vehicles of this object may be missing. Another object, or a later question, gets the event. */
  noteGaps(gaps: readonly KeptGap[]): Promise<void>
  deadLetters(which: Selection): Promise<readonly DeadLetter[]>
  findDeadLetter(id: string): Promise<DeadLetter | undefined>
  messages(which: Listing): Promise<readonly ListedMessage[]>
  replayDead(which: Which): Promise<number>
  discardDead(which: Which): Promise<number>
  replay(which: ReplaySelection): Promise<number>
  vehicle(vin: string): Promise<SentVehicle | undefined>
  vehicles(which: { readonly after?: string | undefined; readonly limit: number }): Promise<readonly SentVehicle[]>
  forgetVehicle(vin: string): Promise<boolean>
  countVehicles(about: undefined): Promise<VehiclesStats>
}

/** What an object answers: a value, or the error for the caller in the Worker. */
export type Reply =
  | { readonly value?: unknown }
  | { readonly error: Pick<FleethookError, 'code' | 'message'> & { readonly hint?: string | undefined } }

/** The class that a binding finds. The platform wants no more than these two methods. */
export function createInboxObject(
  parts: BackendParts,
  keeping: Keeping,
  bind: (env: unknown) => void,
): InboxObjectClass {
  return class FleethookInbox implements InboxObject {
    readonly #shard: Shard

    constructor({ storage }: ObjectState, env: unknown) {
      // A handler can ask for what other objects have.
      bind(env)
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

/** Only a Worker that has the binding can ask, and its module is this one. */
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

/**
 * When the platform looks after messages that were kept. Their handlers start at once, so the alarm is for what an object
 * leaves when it ends. An alarm for each message would be a third of what the message costs.
 */
const lookAfterMs = 5_000

/** How long one alarm waits for handlers. The platform ends an alarm at 15 minutes; the next one takes over. */
const alarmMs = 60_000

/** How long nothing may be handed out before everything counts as resting. */
const quietMs = 50

/** What one object does: keeps messages of some vehicles and takes them to their handlers. */
class Shard implements Questions {
  readonly #parts: BackendParts
  readonly #clock: RestingClock
  readonly #storage: ObjectStorage
  readonly #surroundings: Surroundings
  readonly #inbox: ObjectInbox
  readonly #backend: LocalBackend
  /** The time of the alarm that is set, as far as this object knows. */
  #alarmAt: number | undefined
  #isInAlarm = false
  /** When silent vehicles are to be looked for. */
  #forgetAtMs = 0

  constructor(parts: BackendParts, keeping: Keeping, storage: ObjectStorage, env: unknown) {
    const { settings } = parts
    const clock = createRestingClock(settings.clock)
    const inbox = createObjectInbox(storage, {
      ...keeping,
      inOrder: settings.order === 'vin',
      keepsVehicles: parts.vehicles !== undefined,
      kept: () => this.#lookAfter(clock.now() + lookAfterMs),
    })
    this.#parts = parts
    this.#clock = clock
    this.#storage = storage
    this.#surroundings = { env, context: detachedContext }
    this.#inbox = inbox
    this.#backend = new LocalBackend({
      ...parts,
      inbox: () => inbox,
      settings: { ...settings, ack: 'stored', clock },
      surroundings: this.#surroundings,
    })
  }

  async put(messages: readonly InboxMessage[]): Promise<Refusal | undefined> {
    this.#clock.wake()
    if (!this.#backend.isReady && !(await this.#backend.becomeReady())) return { error: 'inbox_unavailable' }
    return this.#backend.put(
      messages.map((message) => this.#parts.receipts.arrived(message)),
      this.#surroundings,
    )
  }

  async noteGaps(gaps: readonly KeptGap[]): Promise<void> {
    this.#clock.wake()
    for (const gap of gaps) await this.#vehicles().noteGap(gap)
  }

  async deadLetters(which: Selection): Promise<readonly DeadLetter[]> {
    await this.#backend.open()
    return this.#inbox.deadLetters(which)
  }

  async findDeadLetter(id: string): Promise<DeadLetter | undefined> {
    await this.#backend.open()
    return this.#inbox.findDeadLetter(id)
  }

  async messages(which: Listing): Promise<readonly ListedMessage[]> {
    await this.#backend.open()
    return this.#inbox.messages(which)
  }

  replayDead(which: Which): Promise<number> {
    return this.#backend.deadLetters.replay(withDates(which), { env: this.#surroundings.env })
  }

  discardDead(which: Which): Promise<number> {
    return this.#backend.deadLetters.discard(withDates(which))
  }

  async vehicle(vin: string): Promise<SentVehicle | undefined> {
    const found = await this.#vehicles().get(vin)
    return found && reportOf(found)
  }

  async vehicles(which: Parameters<FleetVehicles['list']>[0]): Promise<readonly SentVehicle[]> {
    return (await this.#vehicles().list(which)).map(reportOf)
  }

  forgetVehicle(vin: string): Promise<boolean> {
    return this.#vehicles().forget(vin)
  }

  countVehicles(): Promise<VehiclesStats> {
    return this.#vehicles().stats()
  }

  replay(which: ReplaySelection): Promise<number> {
    return this.#backend.replay(withDates(which), { env: this.#surroundings.env })
  }

  #vehicles(): FleetVehicles {
    const { vehicles } = this.#backend
    if (vehicles !== undefined) return vehicles
    throw new FleethookError('option_invalid', 'This object keeps no state of vehicles: the option `vehicles` is off.')
  }

  /** Forgets vehicles that were silent for too long. Resolves to when the next one may have to be forgotten. */
  async #forgetSilent(): Promise<number | undefined> {
    const afterMs = this.#parts.settings.vehicles?.forgetAfterMs
    const { vehicles } = this.#inbox
    if (afterMs === undefined || vehicles === undefined) return undefined
    const now = this.#clock.now()
    if (now < this.#forgetAtMs) return this.#forgetAtMs
    await vehicles.forgetUnseen(now - afterMs)
    const oldestMs = vehicles.oldestSeenMs()
    if (oldestMs === undefined) return undefined
    return (this.#forgetAtMs = Math.max(oldestMs + afterMs + 1, now + Math.min(afterMs / 2, forgetMs)))
  }

  /** Goes on with what waits, until all of it is done or rests. */
  async alarm(): Promise<void> {
    const inbox = this.#inbox
    const clock = this.#clock
    this.#alarmAt = undefined
    this.#isInAlarm = true
    let restsUntil: number | undefined
    let forgetAtMs: number | undefined
    try {
      clock.wake()
      // Rejects when the inbox cannot be opened: then the platform tries the alarm again.
      await this.#backend.open()
      if (await this.#isQuiet()) restsUntil = clock.sleep()
      inbox.sweep(clock.now())
      forgetAtMs = await this.#forgetSilent()
    } finally {
      this.#isInAlarm = false
      if (inbox.usage().messages > 0) this.#lookAfter(restsUntil ?? clock.now() + lookAfterMs)
      else if (forgetAtMs !== undefined) this.#lookAfter(forgetAtMs)
    }
  }

  /** What waits has an alarm, or is looked after by the alarm that runs, which sets the next one when it ends. */
  #lookAfter(atMs: number): void {
    if (this.#isInAlarm || (this.#alarmAt !== undefined && this.#alarmAt <= atMs)) return
    this.#alarmAt = atMs
    this.#storage.setAlarm(atMs).catch((error: unknown) => {
      // No alarm is set now. The next message sets one.
      this.#alarmAt = undefined
      this.#parts.reports.dispatch.inboxFailed(error)
    })
  }

  /** Resolves to whether everything that waits rests, once that is so or the time of an alarm is over. */
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

function pause(clock: Clock, ms: number): Promise<void> {
  return new Promise((resolve) => {
    clock.after(ms, resolve)
  })
}

function withDates<Selected extends Exclude<Which, string>>(which: Selected): Selected
function withDates(which: Which): Which
function withDates(which: Which): Which {
  if (typeof which === 'string') return which
  const { from, to, ...others } = which
  return {
    ...others,
    ...(from === undefined ? {} : { from: new Date(from) }),
    ...(to === undefined ? {} : { to: new Date(to) }),
  }
}
