import { backgroundTimer, elapsedMs, pause, resolvedOr, type Timer } from '../../src/base/clock.ts'
import { FleethookError } from '../../src/base/errors.ts'
import { aFunction, type Rule } from '../../src/base/options.ts'
import type { OpenOptions } from '../../src/hosting/drainable.ts'
import type { Inbox, InboxFactory, InboxGap, InboxMessage, InboxHost, Opened, Waiting } from '../../src/inbox/inbox.ts'
import type { Window } from '../../src/inbox/window.ts'
import type { Forgotten } from '../../src/observe/dead-letters.ts'
import type { MeanwhileStats } from '../../src/observe/stats.ts'
import { type Server, Way } from './meanwhile/way.ts'

/** The rule of the option `meanwhile`. */
export const meanwhileRule: Rule = {
  must: 'must be an inbox in a file on this machine',
  accepts: (value) => aFunction.accepts(value) && typeof Reflect.get(Object(value), 'file') === 'string',
  hint: "For instance meanwhile: sqliteInbox({ path: 'data/meanwhile.db' }), on a volume that outlives the process.",
}

/** Throws `option_invalid` for a process that takes no messages, which would have none to keep. */
export function checkMeanwhile(owner: string, role: string, meanwhile: InboxFactory | undefined): void {
  if (meanwhile === undefined || role !== 'handle') return
  throw new FleethookError(
    'option_invalid',
    `Option \`meanwhile\` of ${owner} was given with role: 'handle', and such a process takes no messages.`,
    { hint: "Leave it out, or use role: 'receive' or 'both'." },
  )
}

/** How often ways look at the time while something waits, and the time between two lines of the log, in milliseconds. */
const lookMs = 100
const sayMs = 60_000
/** How long a stop goes on to move messages, if the server takes them, in milliseconds. */
const lastMoveMs = 1_000

/** The server takes no messages since then, on the monotonic clock. */
interface Away {
  readonly sinceMs: number
  saidMs: number
  error: unknown
}

/**
 * A file on this machine in front of the server that several processes share. It keeps messages while the server does not take them, and then they
 * move on by themselves, in order, each once. The messages of one `Way` keep their order; the file may hold more than fit into memory.
 */
export class Meanwhile {
  readonly #file: Inbox
  readonly #path: string
  readonly #settings: InboxHost
  readonly #server: Server
  readonly #window: Window<Waiting>
  readonly #ways = new Map<number, Way>()
  #opened: Promise<Opened> | undefined
  /** The greatest id that an earlier process left. */
  #lastId = ''
  /** The server was there at least once, so ways are known. */
  #isBegun = false
  #isClosed = false
  /** New messages wait for it, while the last ones of the file get their places. */
  #held: Promise<void> | undefined
  /** Calls of `put` of the file that are under way. */
  #storing = 0
  #away: Away | undefined
  #looking: Timer | undefined

  constructor(create: InboxFactory, settings: InboxHost, server: Server) {
    const { clock, log } = settings
    const { openGaps = () => [], notListeningMs = () => 0 } = settings.receiver ?? {}
    this.#settings = settings
    this.#server = server
    this.#path = create.file ?? ''
    this.#file = create({
      clock,
      log,
      limits: { pendingMessages: undefined, pendingBytes: undefined },
      read: settings.read,
      on: (event) => {
        if (event.type === 'waiting') this.#add(event.messages.filter(({ id }) => this.#window.includes(id)))
        else if (event.type !== 'gap' || !isStop(event.gap)) settings.on(event)
      },
      receiver: { openGaps, notListeningMs },
    })
    const window = this.#file.window?.({
      clock,
      add: (page) => this.#add(page),
      messages: () => (this.#isBegun && !this.#isClosed ? this.#placed : Infinity),
      holdBack: (until) => this.#holdBack(until),
      failed: (error) => settings.on({ type: 'failed', error }),
    })
    if (window === undefined)
      throw new FleethookError('option_invalid', 'Option `meanwhile` is an inbox without a window.', {
        hint: meanwhileRule.hint,
      })
    this.#window = window
  }

  /** Opens the file. Called again after it rejected. */
  open(options?: OpenOptions): Promise<Opened> {
    return (this.#opened ??= this.#open(options).catch((error: unknown) => {
      this.#opened = undefined
      throw error
    }))
  }

  /** The server is there. What the file has goes first, from earlier processes and from this one. */
  async begin(): Promise<void> {
    const { waiting } = await this.open()
    this.#isBegun = true
    await this.#window.recover(waiting)
  }

  /** Resolves when the server has the messages, or the file. Called in the task in which they came, so that they keep their order. */
  async put(messages: readonly InboxMessage[]): Promise<void> {
    if (this.#held !== undefined) await this.#held
    if (this.#isClosed) throw new FleethookError('inbox_unavailable', 'The inbox was closed.')
    if (!this.#isBegun) return this.#keep(messages).stored
    const [first] = messages
    if (first === undefined) return
    this.#lookLater()
    if (messages.length === 1) return this.#wayOf(first.lane).put(messages)
    const groups = Map.groupBy(messages, ({ lane }) => this.#wayOf(lane))
    const kept = [...groups].map(([way, group]) => way.put(group))
    for (const result of await Promise.allSettled(kept)) if (result.status === 'rejected') throw result.reason
  }

  /** The server takes no messages, or cannot be reached at the start. */
  noteAway(error: unknown): void {
    if (this.#isClosed) return
    this.#lookLater()
    if (this.#away !== undefined) {
      this.#away.error = error
      return
    }
    const nowMs = elapsedMs(this.#settings.clock)
    this.#away = { sinceMs: nowMs, saidMs: nowMs, error }
    this.#settings.log.warn(
      // What to do: Nothing is refused. `reason` says why; look at Postgres or the brokers. What waits moves on [by itself](several-machines.md#while-the-server-is-away).
      'the server takes no messages: until it does, a 2xx means that they are on the disk of this machine',
      { server: this.#server.name, file: this.#path, reason: reasonOf(error) },
    )
  }

  /** Why the file would refuse messages now. `undefined`: it would not, or is not needed. */
  refusing(): 'inbox_full' | 'inbox_unavailable' | undefined {
    return this.#isStraight ? undefined : this.#file.refusing()
  }

  stats(): MeanwhileStats {
    const { messages, bytes } = this.#file.usage()
    const { deadLetters = 0 } = this.#file.stats?.() ?? {}
    const awayMs = this.#away && elapsedMs(this.#settings.clock) - this.#away.sinceMs
    return { messages, bytes, deadLetters, awayMs }
  }

  /** Before the server erases the vehicle: nothing of it goes there any more. */
  async forget(vin: string, dryRun: boolean): Promise<Forgotten> {
    const erased = await this.#file.forget?.(vin, dryRun)
    if (!dryRun) for (const way of this.#ways.values()) way.forget(vin)
    return erased ?? { messages: 0, waiting: 0, deadLetters: 0 }
  }

  /** Sent messages are confirmed, or in the file. What is in it stays there for the next process, unless the server takes it at once. */
  async close(stoppedAtMs?: number): Promise<void> {
    if (this.#isClosed || this.#opened === undefined) return
    const { clock } = this.#settings
    const ways = [...this.#ways.values()]
    while (this.#storing > 0 || ways.some((way) => way.isWaiting)) await pause(clock, lookMs / 10)
    await resolvedOr(Promise.all(ways.flatMap((way) => way.moving ?? [])), clock, lastMoveMs)
    this.#isClosed = true
    this.#looking?.cancel()
    for (const way of ways) way.close()
    await this.#file.close(stoppedAtMs)
  }

  async #open(options?: OpenOptions): Promise<Opened> {
    const opened = await this.#file.open(options)
    const { messages } = this.#file.usage()
    this.#lastId = opened.lastId ?? ''
    for (const gap of opened.gaps ?? []) if (!isStop(gap)) this.#settings.on({ type: 'gap', gap })
    if (messages > 0)
      this.#settings.log.warn(
        // What to do: Nothing to do.
        'an earlier process left messages on the disk of this machine: they go to the server first',
        { server: this.#server.name, file: this.#path, messages },
      )
    return opened
  }

  #keep(messages: readonly InboxMessage[]): { readonly stored: Promise<void>; readonly isPlaced: boolean } {
    const store = async (): Promise<void> => {
      this.#storing += 1
      try {
        await this.#file.put(messages)
      } finally {
        this.#storing -= 1
      }
    }
    const isPlaced = this.#window.takes(messages.at(-1)?.id ?? '')
    return { isPlaced, stored: isPlaced ? store() : this.#window.put(messages, store) }
  }

  /** Messages that are in the file get their places. Timers of an earlier process are in the states of their vehicles. */
  #add(page: readonly Waiting[]): void {
    const old = page.filter(({ id, kind }) => kind === 'timer' && id <= this.#lastId)
    for (const { id } of old) void (async () => this.#file.settle(id))().catch(() => {})
    const kept = page.filter((each) => !old.includes(each))
    for (const [way, group] of Map.groupBy(kept, ({ lane }) => this.#wayOf(lane))) way.add(group.map(({ id }) => id))
    this.#lookLater()
  }

  #wayOf(lane: string): Way {
    const number = this.#server.wayOf(lane)
    const known = this.#ways.get(number)
    if (known !== undefined) return known
    const { clock } = this.#settings
    const way = new Way(
      {
        number,
        clock,
        server: this.#server,
        file: this.#file,
        keep: (messages) => this.#keep(messages),
        moved: () => this.#window.refill(),
        failed: (error) => this.noteAway(error),
        buried: ({ id, bytes }, { message: reason }) =>
          // What to do: See [a message that the server refuses](several-machines.md#while-the-server-is-away).
          this.#settings.log.error('the server refused an acknowledged message: it is a dead letter in the file', {
            server: this.#server.name,
            file: this.#path,
            delivery: id,
            bytes,
            reason,
          }),
      },
      this.#window.isBehind,
    )
    this.#ways.set(number, way)
    return way
  }

  get #placed(): number {
    let placed = 0
    for (const way of this.#ways.values()) placed += way.placed
    return placed
  }

  get #isStraight(): boolean {
    if (!this.#isBegun || this.#window.isBehind) return false
    for (const way of this.#ways.values()) if (way.isAside) return false
    return true
  }

  /** A new message goes on behind the messages that waited for the same promise. */
  #holdBack(until: Promise<void>): void {
    const held = until.then(() => {
      queueMicrotask(() => {
        if (this.#held === held) this.#held = undefined
      })
    })
    this.#held = held
  }

  #lookLater(): void {
    if (this.#isClosed) return
    this.#looking ??= backgroundTimer(this.#settings.clock, lookMs, () => {
      this.#looking = undefined
      this.#look()
    })
  }

  #look(): void {
    const nowMs = elapsedMs(this.#settings.clock)
    const ways = [...this.#ways.values()]
    for (const way of ways) {
      if (way.isLate(nowMs)) {
        way.turnAside(nowMs)
        this.noteAway(undefined)
      }
      if (way.isAside && !this.#window.isBehind && way.mayGoStraight(nowMs)) way.goStraight(nowMs)
    }
    this.#say(nowMs)
    if (this.#away !== undefined || !this.#isStraight || ways.some((way) => way.isWaiting)) this.#lookLater()
  }

  #say(nowMs: number): void {
    const away = this.#away
    if (away === undefined) return
    const { log } = this.#settings
    const { messages, bytes } = this.#file.usage()
    const server = this.#server.name
    const forMs = Math.round(nowMs - away.sinceMs)
    if (this.#isStraight) {
      this.#away = undefined
      // What to do: Nothing to do.
      log.warn('the server takes messages again, and has all that waited on the disk of this machine', {
        server,
        forMs,
      })
    } else if (nowMs - away.saidMs >= sayMs) {
      away.saidMs = nowMs
      // What to do: `reason` says why. The disk of this machine alone has these messages: look at Postgres or the brokers.
      log.warn('new messages still go to the disk of this machine first', {
        server,
        forMs,
        file: this.#path,
        messages,
        bytes,
        reason: reasonOf(away.error),
      })
    }
  }
}

/** Whether a gap is the time in which one receiver was down. Others may have listened then. */
export const isStop = ({ reason }: InboxGap): boolean => reason === 'stopped' || reason === 'restarted'

function reasonOf(error: unknown): string {
  return error instanceof FleethookError ? error.message : 'It does not answer within a second.'
}
