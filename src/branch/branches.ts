import type { DrainOptions, DrainResult, OpenOptions } from '../hosting/drainable.ts'
import type { Erased } from '../inbox/inbox.ts'
import type { BranchBehind } from '../observe/observer.ts'
import type { Stats } from '../observe/stats.ts'
import { letGo } from '../receiver/operated.ts'
import type { Behind, BranchesBehind, Intake, ReceiverParts } from '../receiver/intake.ts'
import type { VehicleStates } from '../vehicles/open.ts'

/** The branches of a receiver. They open and stop with it, and it never waits for a branch that fails. */
export class Branches implements BranchesBehind {
  readonly #byName: Behind['byName']
  readonly #intakes = new Map<string, Intake>()
  /** Resolves when a drain of the receiver has ended all work. */
  readonly #whenQuiet: Promise<void>
  #quiet: () => void = () => {}

  constructor(front: Intake) {
    this.#whenQuiet = new Promise((resolve) => (this.#quiet = resolve))
    this.#byName = front.parts.behind.byName
    if (front.isClosed) this.quiet()
  }

  add(name: string, branch: BranchBehind, intake: Intake, opened: OpenOptions | undefined): void {
    this.#byName.set(name, branch)
    this.#intakes.set(name, intake)
    if (opened !== undefined) void this.#open(intake, opened)
  }

  behind(front: Intake, intakeOf: (name: string, parts: ReceiverParts) => Intake): BranchesBehind {
    const its = new Branches(front)
    for (const [name, { parts }] of this.#intakes) its.#intakes.set(name, intakeOf(name, parts))
    return its
  }

  open(options: OpenOptions): void {
    for (const intake of this.#intakes.values()) void this.#open(intake, options)
  }

  async #open(intake: Intake, options: OpenOptions): Promise<void> {
    try {
      await intake.readiness.open(options)
    } catch (error) {
      // It was closed while it opened.
      if (!intake.isDraining) intake.parts.reports.inboxFailed(error)
    }
  }

  tellStates(tell: (states: VehicleStates) => void): void {
    for (const { states } of this.#intakes.values()) if (states !== undefined) tell(states)
  }

  quiet(): void {
    this.#quiet()
  }

  /** They take messages until the receiver has drained, in the same deadline. Its inbox closes when they have closed. */
  async drain(options: DrainOptions, front: Promise<DrainResult>): Promise<DrainResult> {
    const { deadlineMs, handlerGraceMs, notListeningMs } = options
    const own = { deadlineMs, handlerGraceMs, notListeningMs, takeUntil: this.#whenQuiet }
    const drained = [...this.#intakes].map(async ([name, intake]): Promise<[string, DrainResult]> => [
      name,
      await intake.drain(own),
    ])
    const branches = Object.fromEntries(await Promise.all(drained))
    const { handled, left, lost } = await front
    return { handled, left, lost, branches }
  }

  async letGo(vin: string): Promise<(erased: Erased) => void> {
    const notes: (readonly [name: string, note: (waiting: number) => void])[] = []
    for (const [name, intake] of this.#intakes) notes.push([name, await letGo(intake, vin)])
    return ({ waitingOf }) => {
      for (const [name, note] of notes) note(waitingOf?.[name] ?? 0)
    }
  }

  stats(): Readonly<Record<string, Stats>> {
    return Object.fromEntries([...this.#intakes].map(([name, { operator }]) => [name, operator.stats()]))
  }
}
