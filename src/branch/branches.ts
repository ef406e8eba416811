import type { DrainOptions, DrainResult, OpenOptions } from '../hosting/drainable.ts'
import type { Message } from '../core/message.ts'
import { erasedIn, type Forgotten } from '../observe/dead-letters.ts'
import type { Clock } from '../base/clock.ts'
import type { InboxGap, InboxMessage, OwedBranch } from '../inbox/inbox.ts'
import type { BranchBehind } from '../observe/observer.ts'
import type { Stats } from '../observe/stats.ts'
import type { Behind, BranchesBehind, Intake } from '../receiver/intake.ts'

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

/** The branches of a receiver. They open and stop with it, and it never waits for a branch that fails. */
export class Branches implements BranchesBehind {
  readonly #byName: Behind['byName']
  /** Where they keep messages: the files, or the schemas. */
  readonly places: Set<string> = new Set()
  readonly readers: Map<string, Intake> = new Map()
  readonly #joined: Joined[] = []
  readonly #clock: Clock
  /** By name: since when a branch lacks messages. */
  readonly #owedSinceMs = new Map<string, number>()

  constructor(byName: Behind['byName'], clock: Clock) {
    this.#byName = byName
    this.#clock = clock
  }

  add(name: string, joined: Joined, opened: OpenOptions | undefined): void {
    this.#byName.set(name, joined.branch)
    this.#joined.push(joined)
    if (opened !== undefined) void joined.branch.open(opened).catch(joined.failed)
  }

  /** The receiver is done with messages that a branch lacks when that is not open, or is slow. Only the receiver's inbox can say so after a crash. */
  /** A branch that reads the inbox of the receiver. */
  addReader(name: string, branch: BranchBehind, intake: Intake, opened: OpenOptions | undefined): void {
    this.readers.set(name, intake)
    const failed = (error: unknown): void => {
      // It was closed while it opened.
      if (!intake.isDraining) intake.parts.reports.inboxFailed(error)
    }
    const joined = { name, branch, failed, hasAll: () => true, noteGap: () => {}, handOver: () => undefined }
    this.add(name, joined, opened)
  }

  owed(): readonly OwedBranch[] {
    return this.#joined.flatMap(({ name, hasAll }) => {
      if (hasAll()) {
        this.#owedSinceMs.delete(name)
        return []
      }
      const sinceMs = this.#owedSinceMs.get(name) ?? this.#clock.now()
      this.#owedSinceMs.set(name, sinceMs)
      return [{ branch: name, sinceMs }]
    })
  }

  missed(owed: readonly OwedBranch[]): void {
    for (const { branch, sinceMs } of owed)
      for (const { name, noteGap } of this.#joined) {
        if (name !== branch) continue
        // What this process has just written is no gap.
        if (sinceMs === this.#owedSinceMs.get(name)) continue
        this.#owedSinceMs.set(name, sinceMs)
        noteGap({ reason: 'restarted', fromMs: sinceMs })
      }
  }

  open(options: OpenOptions): void {
    for (const { branch, failed } of this.#joined) void branch.open(options).catch(failed)
  }

  whenOpen(options: OpenOptions): Promise<unknown> {
    return Promise.all(this.#joined.map(({ branch }) => branch.open(options).catch(() => {})))
  }

  /** Resolves when their turns may come; `undefined`: at once. */
  handOver(given: readonly Message[], messages: readonly InboxMessage[]): Promise<unknown> | undefined {
    const waits = new Set<Promise<void>>()
    for (const { handOver } of this.#joined)
      for (const [at, message] of messages.entries()) {
        const own = given[at]
        const handedOver = own && handOver(own, message)
        if (handedOver !== undefined) waits.add(handedOver)
      }
    return waits.size === 0 ? undefined : Promise.all(waits)
  }

  /** They take messages until the receiver has drained, in the same deadline. */
  async drain(options: DrainOptions, front: Promise<DrainResult>, whenQuiet: Promise<void>): Promise<DrainResult> {
    const { deadlineMs, handlerGraceMs, notListeningMs } = options
    const drained = [...this.#byName].map(async ([name, branch]): Promise<[string, DrainResult]> => [
      name,
      await branch.drain({
        deadlineMs,
        handlerGraceMs,
        notListeningMs,
        // The inbox of a receiver closes when its readers have closed.
        takeUntil: this.readers.has(name) ? whenQuiet : front,
      }),
    ])
    const branches = Object.fromEntries(await Promise.all(drained))
    const { handled, left, lost } = await front
    return { handled, left, lost, branches }
  }

  /** Adds what the branches erase of a vehicle to what the receiver has erased. */
  async forget(vin: string, dryRun: boolean, front: Forgotten): Promise<Forgotten> {
    // Go on when a branch cannot erase now. The error says that some is left.
    const others = this.#joined.filter(({ name }) => !this.readers.has(name))
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
