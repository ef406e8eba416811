import { elapsedMs, pause, resolvedOr } from '../../src/base/clock.ts'
import { FleethookError } from '../../src/base/errors.ts'
import type { Durability, OpenOptions } from '../../src/hosting/drainable.ts'
import type { Refusal } from '../../src/http/answers.ts'
import type {
  Claim,
  Inbox,
  InboxFactory,
  InboxGap,
  InboxMessage,
  InboxHost,
  KeptGap,
  Opened,
  Outcome,
  Settled,
} from '../../src/inbox/inbox.ts'
import { erasedIn, type Forgotten } from '../../src/observe/dead-letters.ts'
import type { Asked } from '../../src/observe/observer.ts'
import { nothing } from '../../src/base/pages.ts'
import type { Backlog, Failing, InboxStats } from '../../src/observe/stats.ts'
import type { VehicleStore } from '../../src/inbox/vehicle-store.ts'
import { ForwardingInbox } from './forwarding.ts'
import { isStop, Meanwhile } from './meanwhile.ts'
import type { Server } from './meanwhile/way.ts'
import { Life, type Signs } from './signs-of-life.ts'
import type { SharedPart } from './shared-reader.ts'

/** What a process does: `'receive'` only accepts messages, `'handle'` only runs handlers. */
export type Role = 'both' | 'receive' | 'handle'

/** A system that several processes share: it keeps the messages. */
export interface SharedSystem extends Server {
  readonly durability: Durability
  /** What operators ask, once it is connected. */
  readonly operator: Asked
  /** The states of vehicles. Left out: it cannot keep them. */
  readonly vehicles?: VehicleStore | undefined
  /** Left out: it cannot erase a vehicle. */
  readonly forget?: Inbox['forget']
  /** Connects and checks the system. Called again after it rejected. */
  connect(): Promise<void>
  /** Whether an error of `connect` may pass by itself, because the server is away. */
  mayPass(error: unknown): boolean
  /**
   * Another reader of what the system keeps, for a branch, which is opened after the receiver. It calls `connect` before it asks, and operators ask it by
   * `operatedBy`. Left out: there is one reader.
   */
  readonly reader?: (
    name: string,
    settings: InboxHost,
    takesNone: Refusal | undefined,
    connect: () => Promise<void>,
    operatedBy: (operator: Asked) => Asked,
  ) => Inbox
  /** Resolves when no branch needs the system any more. */
  readersClosed?(): Promise<void>
  /** The gaps of branches that no event reports yet. */
  openGapsOfBranches?(): readonly BranchGap[]
  /** A receiver that has ended left a gap of a branch. */
  adoptGap?(gap: BranchGap): void
  /** The partitions of this process, if it handles. Called after `connect`. */
  read(): SharedPart
  /** Where receivers leave signs of life, once it is connected. */
  signs(): Signs
  /** Why a message would be refused now. */
  refusing(): 'inbox_unavailable' | undefined
  /** Sentences for the operator. */
  facts(): readonly string[]
  figures(): InboxStats
  /** What waits for all processes, at the last look. `undefined`: not known yet. */
  backlog(): Backlog | undefined
  /** What fails in all processes, at the last look. Left out: the system does not keep it. */
  failing?(): Failing
  /** Closes what receiving and handling share, after both. */
  close(): Promise<void>
}

/** A gap of a branch, in the signs of life of its receiver. */
export interface BranchGap extends KeptGap {
  readonly branch: string
}

const isOfBranch = (gap: InboxGap): gap is BranchGap => 'branch' in gap && typeof gap.branch === 'string'

/** How long a start waits for a system that may be away, and the pause between two tries, in milliseconds. */
const startMs = 3_000
const againMs = 1_000

/**
 * The inbox of one process on a system that several share. What a process does follows from its role: a receiving process forwards messages to the
 * system and leaves signs of life, and a handling process reads its partitions. Even with both, each message goes through the system, and another
 * process may handle it.
 */
export class SharedInbox extends ForwardingInbox {
  readonly durability: Durability
  override readonly shared: NonNullable<Inbox['shared']>
  readonly archive: Asked
  readonly forget: Inbox['forget']
  readonly reader?: NonNullable<Inbox['reader']>
  readonly #role: Role
  readonly #settings: InboxHost
  readonly #system: SharedSystem
  readonly #meanwhile: Meanwhile | undefined
  #reader: SharedPart | undefined
  #life: Life | undefined
  #connecting: Promise<void> | undefined
  #isConnected = false
  readonly #closing = new AbortController()

  /** `meanwhile`: keeps messages while the system does not take them. */
  constructor(role: Role, settings: InboxHost, system: SharedSystem, meanwhile: InboxFactory | undefined) {
    super(settings)
    this.#role = role
    this.#settings = settings
    this.#system = system
    const { durability, operator } = system
    this.durability = durability
    this.#meanwhile = meanwhile && new Meanwhile(meanwhile, settings, system)
    this.forget = system.forget && ((vin, dryRun) => this.#forget(vin, dryRun))
    const takesNone = role === 'handle' ? handlesOnly : undefined
    this.shared = {
      handsOut: role === 'receive' ? 'elsewhere' : 'shared',
      takesNone,
      keepsOrder: system.vehicles !== undefined,
      isStillHeld: (id) => this.#read.isStillHeld(id),
      finish: (withinMs, breakOff) => this.#reader?.finish(withinMs, breakOff) ?? breakOff(),
    }
    // An operator may ask before the first message arrives, so each call connects first.
    const { failing = role === 'receive' ? notKnown : undefined } = operator
    const connect = (): Promise<unknown> => this.#connect()
    this.archive = askedAfter(connect, operator, failing)
    const { reader } = system
    if (reader !== undefined)
      this.reader = (name, own) =>
        reader(
          name,
          own,
          takesNone,
          () => this.#connect(),
          (asked) => askedAfter(connect, asked, asked.failing),
        )
  }

  /** With a file, the receiver takes messages while the system is away, but not when the system answers and cannot be used. */
  override async open({ listeningWasKept = false }: OpenOptions = {}): Promise<Opened> {
    const { lastId, gaps = [] } = (await this.#meanwhile?.open()) ?? {}
    let onAccounted = (): void => {}
    const gapsKnown = new Promise<void>((resolve) => (onAccounted = resolve))
    const earlier = gaps.filter(isStop)
    const openedMs = elapsedMs(this.clock)
    const start = (): Promise<void> =>
      this.#start(() => {
        // Without a file, it takes no messages before the system is there.
        const sinceMs = this.#meanwhile === undefined ? elapsedMs(this.clock) : openedMs
        this.#live(earlier, sinceMs, listeningWasKept, onAccounted)
      })
    if (this.#meanwhile === undefined) await start()
    else await this.#startOrGoOn(start, this.#meanwhile)
    const opened: Opened = { lastId, waiting: nothing() }
    return this.#role === 'handle' ? opened : { ...opened, gapsKnown }
  }

  // No await once the inbox is open, so that messages keep the order of the calls.
  protected forward(messages: readonly InboxMessage[]): Promise<void> {
    if (this.#meanwhile !== undefined) return this.#meanwhile.put(messages)
    return this.#isConnected ? this.#system.put(messages) : this.#connect().then(() => this.#system.put(messages))
  }

  get states(): VehicleStore | undefined {
    return this.#system.vehicles
  }

  override refusing(): 'inbox_full' | 'inbox_unavailable' | undefined {
    if (this.#role === 'handle') return this.#reader?.refusing()
    const inFront = this.#meanwhile === undefined ? this.#system.refusing() : this.#meanwhile.refusing()
    return inFront ?? super.refusing()
  }

  override claim(id: string): Promise<Claim | undefined> {
    return this.#read.claim(id)
  }

  override settle(id: string, outcome?: Outcome): Settled | Promise<Settled> {
    return this.#read.settle(id, outcome)
  }

  override usage(): { readonly messages: number; readonly bytes: number } {
    return this.#reader?.usage() ?? super.usage()
  }

  stats(): ReturnType<NonNullable<Inbox['stats']>> {
    const all = { backlog: this.#system.backlog(), failing: this.#system.failing?.() }
    return { ...this.#system.figures(), meanwhile: this.#meanwhile?.stats(), ...all }
  }

  describe(): readonly string[] {
    const own = {
      both: [],
      handle: ['This process only runs handlers: it takes no messages.'],
      receive: ['This process only receives: handlers run in others.'],
    }
    const kept = this.#meanwhile === undefined ? [] : [whileAway(this.#system.name)]
    return [...own[this.#role], ...this.#system.facts(), ...kept]
  }

  override async close(stoppedAtMs?: number): Promise<void> {
    this.#closing.abort()
    await this.#reader?.close()
    await this.#system.readersClosed?.()
    await this.#meanwhile?.close(stoppedAtMs)
    await this.#life?.close()
    await this.#system.close()
  }

  get #read(): SharedPart {
    if (this.#reader === undefined) throw new FleethookError('inbox_unavailable', 'The inbox is not open.')
    return this.#reader
  }

  #connect(): Promise<void> {
    return (this.#connecting ??= this.#system.connect().then(
      () => {
        this.#isConnected = true
        // Closed while it connected.
        if (this.#closing.signal.aborted) void this.#system.close()
      },
      (error: unknown) => {
        this.#connecting = undefined
        throw error
      },
    ))
  }

  /** Connects, and begins to handle and to live. Called again after it rejected. */
  async #start(live: () => void): Promise<void> {
    await this.#connect()
    if (this.#role !== 'receive') await (this.#reader ??= this.#system.read()).open()
    await this.#meanwhile?.begin()
    if (this.#role !== 'handle') live()
  }

  /** Resolves when it has started, or goes on in the background, because the system is away. Rejects when the system is there and cannot be used. */
  async #startOrGoOn(start: () => Promise<void>, meanwhile: Meanwhile): Promise<void> {
    let isOver = false
    const first = start().finally(() => (isOver = true))
    await resolvedOr(first, this.clock, startMs)
    if (!isOver) meanwhile.noteAway(undefined)
    else
      try {
        return await first
      } catch (error) {
        if (!this.#system.mayPass(error)) throw error
      }
    void this.#goOn(first, start, meanwhile)
  }

  async #goOn(first: Promise<void>, start: () => Promise<void>, meanwhile: Meanwhile): Promise<void> {
    const { signal } = this.#closing
    for (let trying: Promise<void> | undefined = first; !signal.aborted; trying = undefined) {
      try {
        return await (trying ?? start())
      } catch (error) {
        meanwhile.noteAway(error)
      }
      await pause(this.clock, againMs, signal).catch(() => {})
    }
  }

  /** `earlier`: when no receiver with this file listened. `sinceMs`: since when this one listens. */
  #live(earlier: readonly InboxGap[], sinceMs: number, listeningWasKept: boolean, onAccounted: () => void): void {
    const { clock, log, receiver: { openGaps = () => [], notListeningMs = () => 0 } = {} } = this.#settings
    const system = this.#system
    this.#life = new Life({
      clock,
      log,
      signs: this.#system.signs(),
      earlier,
      listeningMs: () => elapsedMs(clock) - sinceMs,
      openGaps: () => [...openGaps(), ...(system.openGapsOfBranches?.() ?? [])],
      notListeningMs,
      onGap: (gap) => (isOfBranch(gap) ? system.adoptGap?.(gap) : this.#settings.on({ type: 'gap', gap })),
      onSigned: () => this.#settings.on({ type: 'available' }),
      onAccounted,
    })
    this.#life.start(listeningWasKept)
  }

  /** First in the file, so that nothing of the vehicle goes to the system any more. */
  async #forget(vin: string, dryRun: boolean): Promise<Forgotten> {
    const kept = await this.#meanwhile?.forget(vin, dryRun)
    await this.#connect()
    const erased = (await this.#system.forget?.(vin, dryRun)) ?? nothingErased
    return kept === undefined ? erased : erasedIn([erased, kept])
  }
}

const nothingErased: Forgotten = { messages: 0, waiting: 0, deadLetters: 0 }

/** What the operator has to know about the option `meanwhile`. */
const whileAway = (server: string): string =>
  `While ${server} does not take a message within a second, a 2xx means that it is on the disk of this machine.`

/** Asks only when `ready` has resolved. */
function askedAfter(
  ready: () => Promise<unknown>,
  { deadLetters, messages, replay, replaySome }: Asked,
  failing: Asked['failing'],
): Asked {
  return {
    deadLetters: lettersAfter(ready, deadLetters),
    messages: {
      list: (which) => listedAfter(ready, () => messages.list(which)),
      get: (id) => ready().then(() => messages.get(id)),
    },
    replay: (which, from) => ready().then(() => replay(which, from)),
    replaySome: replaySome && ((which) => ready().then(() => replaySome(which))),
    failing: failing && (() => ready().then(failing)),
  }
}

const lettersAfter = (ready: () => Promise<unknown>, letters: Asked['deadLetters']): Asked['deadLetters'] => ({
  list: (which) => listedAfter(ready, () => letters.list(which)),
  get: (id) => ready().then(() => letters.get(id)),
  replay: (which, from) => ready().then(() => letters.replay(which, from)),
  discard: (which) => ready().then(() => letters.discard(which)),
})

async function* listedAfter<Found>(
  ready: () => Promise<unknown>,
  list: () => AsyncIterable<Found>,
): AsyncGenerator<Found> {
  await ready()
  yield* list()
}

async function notKnown(): Promise<never> {
  throw new FleethookError(
    'inbox_unsupported',
    'No handler runs in this process, and it does not know the handlers of other processes.',
  )
}

const handlesOnly: Refusal = {
  error: 'inbox_unavailable',
  hint: "This process has the role 'handle': post to one with the role 'receive' or 'both'.",
}
