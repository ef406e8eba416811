import type { DrainOptions, DrainResult, OpenOptions } from '../hosting/drainable.ts'
import { erasedIn, type Forgotten } from '../observe/dead-letters.ts'
import type { Erased } from '../inbox/inbox.ts'
import type { BranchBehind } from '../observe/observer.ts'
import type { Stats } from '../observe/stats.ts'
import { letGo } from '../operator/operated.ts'
import type { Behind, BranchesBehind, Intake, ReceiverParts } from '../receiver/intake.ts'
import type { VehicleStates } from '../vehicles/open.ts'

interface Joined {
  readonly name: string
  readonly branch: BranchBehind
  /** Its inbox could not be opened. The next message tries again. */
  readonly failed: (error: unknown) => void
}

/** The branches of a receiver. They open and stop with it, and it never waits for a branch that fails. */
export class Branches implements BranchesBehind {
  readonly #byName: Behind['byName']
  /** Where they keep messages: the files, or the schemas. */
  readonly places: Set<string> = new Set()
  /** The branches that read the inbox of the receiver, by name. */
  readonly #readers = new Map<string, Intake>()
  readonly #joined: Joined[] = []
  /** Resolves when a drain of the receiver has ended all work. */
  readonly #whenQuiet: Promise<void>
  #quiet: () => void = () => {}

  constructor(front: Intake) {
    this.#whenQuiet = new Promise((resolve) => (this.#quiet = resolve))
    this.#byName = front.parts.behind.byName
    if (front.isClosed) this.quiet()
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
    const its = new Branches(front)
    for (const [name, { parts }] of this.#readers) its.#readers.set(name, intakeOf(name, parts))
    return its
  }

  open(options: OpenOptions): void {
    for (const intake of this.#readers.values()) void this.#openReader(intake, options)
    for (const { branch, failed } of this.#joined) void branch.open(options).catch(failed)
  }

  async #openReader(intake: Intake, options: OpenOptions): Promise<void> {
    try {
      await intake.readiness.open(options)
    } catch (error) {
      // It was closed while it opened.
      if (!intake.isDraining) intake.parts.reports.inboxFailed(error)
    }
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
