import type { DrainOptions, DrainResult, OpenOptions } from '../hosting/drainable.ts'
import type { Message } from '../core/message.ts'
import { erasedIn, type Forgotten } from '../observe/dead-letters.ts'
import type { InboxMessage } from '../inbox/inbox.ts'
import type { BranchBehind } from '../observe/observer.ts'
import type { Stats } from '../observe/stats.ts'
import type { Behind, BranchesBehind } from '../receiver/intake.ts'

interface Joined {
  readonly branch: BranchBehind
  /** Its inbox could not be opened. The next message tries again. */
  readonly failed: (error: unknown) => void
  /** The receiver has put the message into its inbox, and no handler has run for it. */
  readonly handOver: (given: Message, message: InboxMessage) => Promise<void> | undefined
}

/** The branches of a receiver. They open and stop with it, and it never waits for one that fails. */
export class Branches implements BranchesBehind {
  readonly #byName: Behind['byName']
  /** Where they keep messages: the files, or the schemas. */
  readonly places: Set<string> = new Set()
  readonly #joined: Joined[] = []

  constructor(byName: Behind['byName']) {
    this.#byName = byName
  }

  add(name: string, joined: Joined, opened: OpenOptions | undefined): void {
    this.#byName.set(name, joined.branch)
    this.#joined.push(joined)
    if (opened !== undefined) void joined.branch.open(opened).catch(joined.failed)
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
  async drain(options: DrainOptions, front: Promise<DrainResult>): Promise<DrainResult> {
    const { deadlineMs, handlerGraceMs, notListeningMs } = options
    const drained = [...this.#byName].map(async ([name, branch]): Promise<[string, DrainResult]> => [
      name,
      await branch.drain({ deadlineMs, handlerGraceMs, notListeningMs, takeUntil: front }),
    ])
    const branches = Object.fromEntries(await Promise.all(drained))
    const { handled, left, lost } = await front
    return { handled, left, lost, branches }
  }

  /** Adds what the branches erase of a vehicle to what the receiver has erased. */
  async forget(vin: string, dryRun: boolean, front: Forgotten): Promise<Forgotten> {
    // One that cannot erase now keeps no other from it. The error says that some is left.
    const asked = await Promise.allSettled(this.#joined.map(({ branch }) => branch.forget(vin, { dryRun })))
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
