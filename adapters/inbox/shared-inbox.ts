import { FleethookError } from '../../src/base/errors.ts'
import type { Durability, OpenOptions } from '../../src/hosting/drainable.ts'
import type { Refusal } from '../../src/http/answers.ts'
import type {
  Claim,
  Inbox,
  InboxGap,
  InboxMessage,
  InboxSettings,
  Opened,
  Outcome,
  Settled,
} from '../../src/inbox/inbox.ts'
import type { Asked } from '../../src/observe/observer.ts'
import { nothing } from '../../src/base/pages.ts'
import type { Backlog, Failing, InboxStats } from '../../src/observe/stats.ts'
import type { VehicleStore } from '../../src/inbox/vehicle-store.ts'
import { ForwardingInbox } from './forwarding.ts'
import { Life, type Signs } from './signs-of-life.ts'
import type { SharedPart } from './shared-reader.ts'

/** What a process does: `'receive'` only accepts messages, `'handle'` only runs handlers. */
export type Role = 'both' | 'receive' | 'handle'

/** A system that several processes share: it keeps the messages. */
export interface SharedSystem {
  readonly durability: Durability
  /** What operators ask, once it is connected. */
  readonly operator: Asked
  /** The states of vehicles. Left out: it cannot keep them. */
  readonly vehicles?: VehicleStore | undefined
  /** Left out: it cannot erase a vehicle. */
  readonly forget?: Inbox['forget']
  /** Connects and checks the system. Called again after it rejected. Resolves to the greatest id that an earlier process left on this machine. */
  connect(): Promise<string | undefined>
  /** Keeps messages in the order of the calls. Rejects as `put` of an inbox. */
  put(messages: readonly InboxMessage[]): Promise<void>
  /** The partitions of this process, for one that handles. Called after `connect`. */
  read(): SharedPart
  /** Where receivers leave signs of life, once it is connected. */
  signs(): Signs
  /** See `Life`. */
  earlier?(): readonly InboxGap[]
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

/**
 * The inbox of one process on a system that several share. What a process does follows from its role: one that receives forwards messages to the
 * system and leaves signs of life, and one that handles reads its partitions. Even with both, each message goes through the system, and another
 * process may handle it.
 */
export class SharedInbox extends ForwardingInbox {
  readonly durability: Durability
  override readonly handsOut: 'shared' | 'elsewhere'
  readonly takesNone: Refusal | undefined
  readonly keepsOrder: boolean
  readonly vehicles: VehicleStore | undefined
  readonly operator: Asked
  readonly forget: Inbox['forget']
  readonly #role: Role
  readonly #settings: InboxSettings
  readonly #system: SharedSystem
  #reader: SharedPart | undefined
  #life: Life | undefined
  #connecting: Promise<string | undefined> | undefined
  #isOpen = false

  constructor(role: Role, settings: InboxSettings, system: SharedSystem) {
    super(settings)
    this.#role = role
    this.#settings = settings
    this.#system = system
    const { durability, vehicles, operator } = system
    this.durability = durability
    this.forget = system.forget
    this.handsOut = role === 'receive' ? 'elsewhere' : 'shared'
    this.takesNone = role === 'handle' ? handlesOnly : undefined
    this.vehicles = vehicles
    this.keepsOrder = vehicles !== undefined
    // An operator may ask before the first message arrives, so each call connects first.
    const { failing = role === 'receive' ? notKnown : undefined } = operator
    const connect = (): Promise<unknown> => this.#connect()
    this.operator = askedAfter(connect, operator, failing)
  }

  override async open({ listeningWasKept = false }: OpenOptions = {}): Promise<Opened> {
    const lastId = await this.#connect()
    if (this.#role !== 'receive') await (this.#reader = this.#system.read()).open()
    this.#isOpen = true
    const opened: Opened = { lastId, waiting: nothing() }
    if (this.#role === 'handle') return opened
    const { clock, log, openGaps = () => [], onGap = () => {}, onCapacity, notListeningMs = () => 0 } = this.#settings
    const gapsKnown = new Promise<void>((onAccounted) => {
      this.#life = new Life({
        clock,
        log,
        signs: this.#system.signs(),
        earlier: this.#system.earlier?.() ?? [],
        openGaps,
        notListeningMs,
        onGap,
        onSigned: onCapacity,
        onAccounted,
      })
      this.#life.start(listeningWasKept)
    })
    return { ...opened, gapsKnown }
  }

  // No await once the inbox is open, so that messages keep the order of the calls.
  protected forward(messages: readonly InboxMessage[]): Promise<void> {
    return this.#isOpen ? this.#system.put(messages) : this.#connect().then(() => this.#system.put(messages))
  }

  override refusing(): 'inbox_full' | 'inbox_unavailable' | undefined {
    return this.#role === 'handle' ? this.#reader?.refusing() : (this.#system.refusing() ?? super.refusing())
  }

  override claim(id: string): Promise<Claim | undefined> {
    return this.#read.claim(id)
  }

  isStillHeld(id: string): Promise<boolean> {
    return this.#read.isStillHeld(id)
  }

  override settle(id: string, outcome?: Outcome): Settled | Promise<Settled> {
    return this.#read.settle(id, outcome)
  }

  override usage(): { readonly messages: number; readonly bytes: number } {
    return this.#reader?.usage() ?? super.usage()
  }

  stats(): InboxStats {
    return this.#system.figures()
  }

  overall(): { readonly backlog: Backlog | undefined; readonly failing: Failing | undefined } {
    return { backlog: this.#system.backlog(), failing: this.#system.failing?.() }
  }

  facts(): readonly string[] {
    const own = {
      both: [],
      handle: ['This process only runs handlers: it takes no messages.'],
      receive: ['This process only receives: handlers run in others.'],
    }
    return [...own[this.#role], ...this.#system.facts()]
  }

  async finish(withinMs: number, breakOff: () => Promise<void>): Promise<void> {
    if (this.#reader === undefined) await breakOff()
    else await this.#reader.finish(withinMs, breakOff)
  }

  override async close(): Promise<void> {
    await this.#reader?.close()
    await this.#life?.close()
    await this.#system.close()
  }

  get #read(): SharedPart {
    if (this.#reader === undefined) throw new FleethookError('inbox_unavailable', 'The inbox is not open.')
    return this.#reader
  }

  #connect(): Promise<string | undefined> {
    return (this.#connecting ??= this.#system.connect().catch((error: unknown) => {
      this.#connecting = undefined
      throw error
    }))
  }
}

/** Asks only when `ready` has resolved. */
function askedAfter(
  ready: () => Promise<unknown>,
  { deadLetters, messages, replay, replaySome }: Asked,
  failing: Asked['failing'],
): Asked {
  async function* listed<Found>(list: () => AsyncIterable<Found>): AsyncGenerator<Found> {
    await ready()
    yield* list()
  }
  return {
    deadLetters: {
      list: (which) => listed(() => deadLetters.list(which)),
      get: (id) => ready().then(() => deadLetters.get(id)),
      replay: (which, from) => ready().then(() => deadLetters.replay(which, from)),
      discard: (which) => ready().then(() => deadLetters.discard(which)),
    },
    messages: {
      list: (which) => listed(() => messages.list(which)),
      get: (id) => ready().then(() => messages.get(id)),
    },
    replay: (which, from) => ready().then(() => replay(which, from)),
    replaySome: replaySome && ((which) => ready().then(() => replaySome(which))),
    failing: failing && (() => ready().then(failing)),
  }
}

async function notKnown(): Promise<never> {
  throw new FleethookError(
    'inbox_unsupported',
    'No handler runs in this process, and it does not know those of others.',
  )
}

const handlesOnly: Refusal = {
  error: 'inbox_unavailable',
  hint: "This process has the role 'handle': post to one with the role 'receive' or 'both'.",
}
