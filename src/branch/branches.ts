import type { DrainOptions, DrainResult, OpenOptions } from '../hosting/drainable.ts'
import type { Message, RequestWork } from '../core/message.ts'
import { erasedIn, type Forgotten } from '../observe/dead-letters.ts'
import { resolvedOr } from '../base/clock.ts'
import type { Erased, InboxGap, InboxMessage, OwedBranch } from '../inbox/inbox.ts'
import type { BranchBehind } from '../observe/observer.ts'
import type { Stats } from '../observe/stats.ts'
import { letGo } from '../operator/operated.ts'
import type { HostedReceiver } from '../receiver/hosted.ts'
import type { Behind, BranchesBehind, Intake, ReceiverParts } from '../receiver/intake.ts'
import type { VehicleStates } from '../vehicles/open.ts'

/** The longest that messages of an earlier process wait until branches are open, in milliseconds. */
const openMs = 5_000

interface Joined {
  readonly name: string
  readonly branch: BranchBehind
  /** Its inbox could not be opened. The next message tries again. */
  readonly failed: (error: unknown) => void
  /** It is open, and has all that was handed over, and events for its gaps. */
  readonly hasAll: () => boolean
  /** Messages may be missing on the branch. */
  readonly noteGap: (gap: InboxGap) => void
  /** The receiver has put the message into its inbox, and no handler has run for it. */
  readonly handOver: (given: Message, message: InboxMessage) => Promise<void> | undefined
}

type Front = Pick<HostedReceiver, 'intake' | 'settings'>

/** The branches of a receiver. They open and stop with it, and it never waits for a branch that fails. */
export class Branches implements BranchesBehind {
  readonly #byName: Behind['byName']
  /** Where they keep messages: the files, or the schemas. */
  readonly places: Set<string> = new Set()
  /** The branches that read the inbox of the receiver, by name. */
  readonly #readers = new Map<string, Intake>()
  readonly #joined: Joined[] = []
  readonly #front: Front
  /** Resolves when a drain of the receiver has ended all work. */
  readonly #whenQuiet: Promise<void>
  #quiet: () => void = () => {}
  /** By name: since when a branch lacks messages. */
  readonly #owedSinceMs = new Map<string, number>()

  constructor(front: Front) {
    this.#front = front
    this.#whenQuiet = new Promise((resolve) => (this.#quiet = resolve))
    this.#byName = front.intake.parts.behind.byName
    if (front.intake.isClosed) this.quiet()
  }

  add(name: string, joined: Joined, opened: OpenOptions | undefined): void {
    this.#byName.set(name, joined.branch)
    this.#joined.push(joined)
    if (opened !== undefined) void joined.branch.open(opened).catch(joined.failed)
  }

  /** A branch that reads the inbox of the receiver. */
  addReader(name: string, branch: BranchBehind, intake: Intake, opened: OpenOptions | undefined): void {
    this.#byName.set(name, branch)
    this.#readers.set(name, intake)
    if (opened !== undefined) void this.#openReader(intake, opened)
  }

  behind(front: Intake, intakeOf: (name: string, parts: ReceiverParts) => Intake): BranchesBehind {
    const its = new Branches({ intake: front, settings: front.parts.settings })
    for (const [name, { parts }] of this.#readers) its.#readers.set(name, intakeOf(name, parts))
    return its
  }

  /** The receiver is done with messages that a branch lacks when that is not open, or is slow. Only the receiver's inbox can say so after a crash. */
  owed(): readonly OwedBranch[] {
    return this.#joined.flatMap(({ name, hasAll }) => {
      if (hasAll()) {
        this.#owedSinceMs.delete(name)
        return []
      }
      const sinceMs = this.#owedSinceMs.get(name) ?? this.#front.settings.clock.now()
      this.#owedSinceMs.set(name, sinceMs)
      return [{ branch: name, sinceMs }]
    })
  }

  #missed(owed: readonly OwedBranch[]): void {
    for (const { branch, sinceMs } of owed)
      for (const { name, noteGap } of this.#joined) {
        if (name !== branch) continue
        // What this process has just written is no gap.
        if (sinceMs === this.#owedSinceMs.get(name)) continue
        this.#owedSinceMs.set(name, sinceMs)
        noteGap({ reason: 'restarted', fromMs: sinceMs })
      }
  }

  open(options: OpenOptions, owed: readonly OwedBranch[]): Promise<void> | undefined {
    this.#missed(owed)
    const readers = [...this.#readers.values()].map((intake) => this.#openReader(intake, options))
    const joined = this.#joined.map(({ branch, failed }) => branch.open(options).catch(failed))
    const open = Promise.all([...readers, ...joined])
    const { settings, intake } = this.#front
    const isWaitedFor = intake.durability !== 'memory' && settings.inbox.place === undefined
    return isWaitedFor ? resolvedOr(open, settings.clock, openMs) : undefined
  }

  async #openReader(intake: Intake, options: OpenOptions): Promise<void> {
    try {
      await intake.readiness.open(options)
    } catch (error) {
      // It was closed while it opened.
      if (!intake.isDraining) intake.parts.reports.inboxFailed(error)
    }
  }

  handOver(request: RequestWork, messages: readonly InboxMessage[]): Promise<unknown> | undefined {
    if (request.isBound) return undefined
    const waits = new Set<Promise<void>>()
    for (const { handOver } of this.#joined)
      for (const [at, message] of messages.entries()) {
        const own = request.messages[at]
        const handedOver = own && handOver(own, message)
        if (handedOver !== undefined) waits.add(handedOver)
      }
    return waits.size === 0 ? undefined : Promise.all(waits)
  }

  tellStates(tell: (states: VehicleStates) => void): void {
    for (const { states } of this.#readers.values()) if (states !== undefined) tell(states)
  }

  quiet(): void {
    this.#quiet()
  }

  /** They take messages until the receiver has drained, in the same deadline. */
  async drain(options: DrainOptions, front: Promise<DrainResult>): Promise<DrainResult> {
    const { deadlineMs, handlerGraceMs, notListeningMs } = options
    const drained = [...this.#byName].map(async ([name, branch]): Promise<[string, DrainResult]> => [
      name,
      await branch.drain({
        deadlineMs,
        handlerGraceMs,
        notListeningMs,
        // The inbox of a receiver closes when its readers have closed.
        takeUntil: this.#readers.has(name) ? this.#whenQuiet : front,
      }),
    ])
    const branches = Object.fromEntries(await Promise.all(drained))
    const { handled, left, lost } = await front
    return { handled, left, lost, branches }
  }

  async letGo(vin: string): Promise<(erased: Erased) => void> {
    const notes: (readonly [name: string, note: (waiting: number) => void])[] = []
    for (const [name, intake] of this.#readers) notes.push([name, await letGo(intake, vin)])
    return ({ waitingOf }) => {
      for (const [name, note] of notes) note(waitingOf?.[name] ?? 0)
    }
  }

  /** Adds what the branches erase of a vehicle to what the receiver has erased. */
  async forget(vin: string, dryRun: boolean, front: Forgotten): Promise<Forgotten> {
    // Go on when a branch cannot erase now. The error says that some is left.
    const others = this.#joined.filter(({ name }) => !this.#readers.has(name))
    const asked = await Promise.allSettled(others.map(({ branch }) => branch.forget(vin, { dryRun })))
    const all = [front]
    for (const each of asked) {
      if (each.status === 'rejected') throw each.reason
      all.push(each.value)
    }
    return erasedIn(all)
  }

  stats(): Readonly<Record<string, Stats>> {
    return Object.fromEntries([...this.#byName].map(([name, branch]) => [name, branch.stats()]))
  }
}
