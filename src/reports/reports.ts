import type { DeadMessage } from '../observe/dead-letters.ts'
import { type Clock, elapsedMs, pause } from '../base/clock.ts'
import { type Log, throttled } from '../base/log.ts'
import type { FleetEvent } from '../events/event.ts'
import { type MalformedBody, vinOfEvent } from '../events/malformed.ts'
import { escapeControls } from '../events/summarize.ts'
import type { Ack, Durability } from '../hosting/drainable.ts'
import type { Secret } from '../http/secret.ts'
import { crashText, type InboxMessage } from '../inbox/inbox.ts'
import type { MissingField } from '../observe/stats.ts'
import type { Delivery, Observer, ReceivedMessage, TestMessage } from '../observe/observer.ts'
import { failureDetails, shownVehicle } from './failure-details.ts'
import { createDriftReport, type DriftReport } from '../wire/drift.ts'
import { Refusals } from './refusals.ts'
import { Observers } from './observers.ts'

/** What reports need of the settings of a receiver. */
interface ReportsOptions {
  readonly secret: Secret
  readonly log: Log
  readonly logErrorText: boolean
  readonly clock: Clock
  readonly observe: readonly Observer[]
  readonly ack: Ack | undefined
  readonly branch: string | undefined
}

type FailedDelivery = Pick<Delivery, 'id' | 'attempt'>

/** What is known about a failed run beside its error. */
interface FailedRun {
  /** When it runs next, in milliseconds since the epoch. `undefined`: never. It can be later when another handler of the message fails too. */
  readonly nextAtMs: number | undefined
  /** The most runs, the first included. `Infinity`: no limit. */
  readonly limit: number
  /** No run begins after this time, in milliseconds since the epoch. `Infinity`: no limit. */
  readonly untilMs: number
  readonly handler: string
  /** All that the handler got. `undefined`: some of it is gone. */
  readonly seen: readonly unknown[] | undefined
  readonly messages?: number | undefined
  /** More than 0 when the handler's circuit breaker is open after this failure: the number of failures in a row. */
  readonly failures: number
}

/** Counts what happens, logs what an operator should know, and tells the observers. */
export class Reports {
  /** `unkept`: messages that were acknowledged and then refused by the inbox. */
  readonly counts = { received: 0, recovered: 0, replayed: 0, unkept: 0, deadLettersDropped: 0, discarded: 0, tests: 0 }
  /** When the last message was received, in milliseconds since the epoch. */
  lastReceivedAtMs: number | undefined
  readonly topics: Record<string, number> = {}
  /** Requests by the place of their secret in its list. */
  readonly secrets: number[]
  readonly refusals: Refusals
  readonly observers: Observers
  readonly drift: DriftReport = createDriftReport()
  /** The vehicles whose clock was set back. Only the part `vehicles` knows them. */
  readonly clocksBehind: Set<string> = new Set()
  /** Fields of rules that do not come. Only the part `vehicles` knows them. */
  fieldsMissing: readonly MissingField[] = []
  /** When the certificate of the server ends. Only `serve` knows it. */
  certificateUntilMs: number | undefined
  /** Whether anybody has asked if the receiver is ready, as a load balancer does. */
  readinessAsked = false
  readonly #settings: ReportsOptions
  readonly #say: ReturnType<typeof throttled>
  #lingersUntilMs = -Infinity

  constructor(settings: ReportsOptions) {
    const { secret, log, clock, observe } = settings
    this.#settings = settings
    this.#say = throttled(log, clock)
    this.secrets = typeof secret === 'function' || secret === false ? [] : [secret].flat().map(() => 0)
    // What to do: It threw. The message went on without it.
    this.observers = new Observers((thrown) => this.#say.error('an observer failed', this.#where(thrown)))
    for (const observer of observe) this.observers.add(observer)
    this.refusals = new Refusals(clock, log, this.observers)
  }

  noteSecret(place: number): void {
    while (this.secrets.length <= place) this.secrets.push(0)
    this.secrets[place] = (this.secrets[place] ?? 0) + 1
  }

  noteAccepted(messages: readonly InboxMessage[]): void {
    const { counts, topics } = this
    for (const { kind, event, receivedAt } of messages) {
      if (kind !== 'wire' || event === undefined) continue
      counts.received += 1
      this.lastReceivedAtMs = receivedAt
      topics[event.topic] = (topics[event.topic] ?? 0) + 1
    }
    this.observers.tell.received?.(messages.filter(isReceived))
  }

  noteTest(message: TestMessage): void {
    this.counts.tests += 1
    this.observers.tell.tested?.(message)
  }

  noteRecovered(messages: readonly Pick<InboxMessage, 'kind'>[]): void {
    for (const { kind } of messages) if (kind === 'wire') this.counts.recovered += 1
  }

  /** Messages were acknowledged before the inbox had them, and it refused them. */
  noteLost(given: readonly InboxMessage[]): void {
    this.noteAccepted(given)
    const messages = given.filter(({ kind }) => kind === 'wire').length
    this.counts.unkept += messages
    // What to do: Only with `ack: 'received'`. Use `'stored'`.
    this.#say.error('acknowledged messages did not reach the inbox and are lost', {}, undefined, { messages })
  }

  /** A request ends. Returns a promise when it has to live on, for at most this time, because lines are held back: later ones have no timer. */
  requestEnds(atMostMs: number): Promise<void> | undefined {
    const { clock } = this.#settings
    const now = elapsedMs(clock)
    const dueAtMs = Math.min(this.#say.dueAtMs() ?? Infinity, this.refusals.dueAtMs() ?? Infinity)
    // One request is enough, unless the runtime has ended it.
    if (dueAtMs === Infinity || now < this.#lingersUntilMs) return undefined
    const waitMs = Math.min(Math.max(0, dueAtMs - now), atMostMs)
    this.#lingersUntilMs = now + waitMs
    return pause(clock, waitMs).then(() => {
      this.#say.flush()
      this.refusals.flush()
    })
  }

  /** Something about the newest state of a vehicle. */
  noteState(line: string, details: Record<string, unknown>, vin?: string): void {
    this.#say.warn(line, { vehicle: shownVehicle(vin), ...details }, details['reason'] ?? line)
  }

  /** The clock is behind the newest message by this much. */
  noteClockBehind(behindMs: number): void {
    // What to do: The machine's clock was set back by `behindMs`, or was wrong before. Check its time service.
    this.#say.warn('the clock is behind the newest message: messages count as received right after it', { behindMs })
  }

  noteSlowReader(): void {
    // What to do: Nothing to do for the receiver. A page of the inspector or `fleethook tail` read too slowly, and connects again by itself.
    this.#say.warn('a reader of the feed was too slow, and was dropped', {})
  }

  /** `forward` is a handler of the receiver itself. */
  noteForward(handler: string): void {
    // What to do: Put it on a [branch](branches.md). While the other server is down, the receiver's own handlers wait, and its inbox fills.
    this.#say.warn('`forward` is not on a branch: while it waits, so do the later messages of its vehicles', {
      handler,
    })
  }

  /** A drain has ended, and no event reported this number of gaps. Logs the last lines. */
  noteUnreportedGaps(gaps: number): void {
    this.refusals.stop()
    this.#say.stop()
    // What to do: Fetch the full state of the vehicles (`client.refill`).
    if (gaps > 0) this.#say.error('messages were lost, and no gap event could report it before the end', { gaps })
  }

  /** A message became a dead letter. Returns a promise, which never rejects, while an observer is not done with it. */
  noteDead(letter: DeadMessage, durability: Durability): Promise<void> | undefined {
    const { id, event, attempts, error } = letter
    // Errors of handlers may quote the message, so only this one is part of the line.
    // What to do about `a message of topic … is a dead letter after …`, `a message of topic … is a dead letter: … processes ended while they handled
    // it`: Run the command in `show`, fix the handler, then [replay](operating.md#dead-letters). When processes ended, the message may be
    // [innocent](reliability.md#a-message-that-ends-its-process).
    const crashes = crashText(Number.parseInt(error, 10))
    const { branch } = this.#settings
    const ofBranch = branch === undefined ? '' : ` --branch ${branch}`
    const command = `fleethook dead show ${id}${ofBranch}${durability === 'disk' ? '' : ' --url …'}`
    const where = branch === undefined ? 'receiver' : `receiver.branches.get('${branch}')`
    this.#say.error(
      error.startsWith(crashes)
        ? `a message of topic ${event.topic} is a dead letter: ${crashes}`
        : `a message of topic ${event.topic} is a dead letter after ${attempts} ${attempts === 1 ? 'attempt' : 'attempts'}`,
      {
        vehicle: shownVehicle(vinOfEvent(event)),
        delivery: id,
        reason: this.#settings.logErrorText ? escapeControls(error) : undefined,
        show: durability === 'memory' ? `${where}.deadLetters.get('${id}')` : command,
      },
      'dead letter',
    )
    return this.observers.dead?.(letter)
  }

  failed(error: unknown, event: FleetEvent | MalformedBody, { id, attempt }: FailedDelivery, run: FailedRun): void {
    const { handler, messages, failures, nextAtMs, limit, untilMs, seen } = run
    const vin = vinOfEvent(event)
    const details = {
      handler,
      vehicle: shownVehicle(vin),
      delivery: id,
      attempt: limit === Infinity ? attempt : `${attempt} of ${limit}`,
      next: nextAtMs === undefined ? 'none' : iso(nextAtMs),
      until: untilMs === Infinity || nextAtMs === undefined ? undefined : iso(untilMs),
      messages,
      ...this.#where(error, vin, seen),
    }
    // What to do about `a handler for … failed`: See [the line explained](handlers.md#what-the-log-says).
    const line = `a handler for ${messages === undefined ? event.topic : `a batch of ${event.topic}`} failed`
    const key = `failed ${event.topic} ${handler}`
    if (failures > 0) this.#sayPaused(handler, { topic: event.topic, failures, ...details })
    // The line of its dead letter comes next.
    else if (nextAtMs === undefined) this.#say.warnOfEnd(line, details, key)
    else this.#say.warn(line, details, key)
    const nextAt = nextAtMs === undefined ? undefined : new Date(nextAtMs)
    const { failed } = this.observers.tell
    failed?.(error, { kind: 'handler', event, delivery: { id, attempt }, messages, handler, nextAt })
  }

  /** A paused handler threw `Retry` when it was tried, so it stays paused until `atMs`. `failures`: the runs that failed in a row. */
  stillPaused(handler: string, atMs: number, failures: number): void {
    this.#sayPaused(handler, { failures, next: iso(atMs) })
  }

  recovered(handler: string): void {
    // What to do: Nothing to do.
    const line = 'a handler succeeds again: its circuit breaker is closed, and its messages go on'
    this.#say.warn(line, { handler }, `recovered ${handler}`)
  }

  discarded(given: string, topic: string, messages: number): void {
    const reason = given.slice(0, 200)
    this.counts.discarded += messages
    // What to do: Nothing to do.
    this.#say.warn(`a handler for ${topic} threw Discard`, { reason }, undefined, { messages })
  }

  /** A handler ignored its signal and ended this long after its time limit, so it ran beside its retry. */
  endedLate(
    lateMs: number,
    event: FleetEvent | MalformedBody,
    { id, attempt }: FailedDelivery,
    { handler, messages }: Pick<FailedRun, 'handler' | 'messages'>,
  ): void {
    const { topic } = event
    const vehicle = shownVehicle(vinOfEvent(event))
    this.#say.warn(
      // What to do: Pass `context.signal` on. Until then, write with a [fencing value](handlers.md#fencing).
      'a handler ignored its signal and ended after its time limit: it ran beside its retry',
      { handler, topic, vehicle, delivery: id, attempt, messages, lateMs },
      `late ${topic} ${handler}`,
    )
  }

  readonly inboxFailed = (error: unknown): void => {
    // What to do: Messages may be handled again. Look up the [`code`](#errors-by-code).
    this.#say.error('the inbox failed', this.#where(error))
    this.observers.tell.failed?.(error, { kind: 'inbox' })
  }

  /** Acknowledged messages were given up, because a drain reached its deadline or the runtime ended their request. */
  lost(messages: number): void {
    const line =
      // What to do about `messages were not handled in time and are lost: they were answered 503`, `acknowledged messages were not handled in time
      // and are lost`: Make handlers faster, allow fewer attempts, or give the process more time to stop (`graceMs`). Use a durable inbox.
      this.#settings.ack === 'handled'
        ? 'messages were not handled in time and are lost: they were answered 503'
        : 'acknowledged messages were not handled in time and are lost'
    this.#say.error(line, {}, undefined, { messages })
  }

  #where(error: unknown, vin?: string, seen?: readonly unknown[]): Record<string, unknown> {
    return failureDetails(error, this.#settings.logErrorText, vin, seen)
  }

  #sayPaused(handler: string, details: Record<string, unknown>): void {
    // What to do: It failed for five vehicles in a row, and is tried with one message at a time. Fix what it needs. Until it recovers, nothing is given up.
    const line = 'a handler fails for every vehicle: its circuit breaker is open, and its messages wait'
    // With the key of its other failures, the line would be lost among them when an outage is short.
    this.#say.error(line, { handler, ...details }, `paused ${handler}`)
  }
}

/** A message that came over the wire. It was just read, so it has its event. */
const isReceived = (message: InboxMessage): message is InboxMessage & ReceivedMessage =>
  message.kind === 'wire' && message.event !== undefined

const iso = (ms: number): string => new Date(ms).toISOString()
