import type { Log } from '../../../src/base/log.ts'
import type { UnopenedInbox } from '../../../src/observe/stats.ts'
import type { BranchGap } from '../shared-inbox.ts'
import type { PostgresBranch } from './branch.ts'
import {
  type AddedBranch,
  addBranch,
  branchesGoneBefore,
  dropBranch,
  leftBranches,
  noteGone,
  noteUsed,
} from './branches.ts'
import { type Database, stateOf } from './client.ts'
import { declaredBy } from './handling.ts'
import type { Writer } from './writer.ts'

/** After this time without a process that has it, new messages are not for a branch, in milliseconds. */
const unusedMs = 5 * 60_000
/** How often this process says that it has its branches, in milliseconds. */
const usedEveryMs = 60_000
/** Two processes may add two branches at once, and one of them finds that the number is taken. */
const mostTries = 10
const isTaken = (error: unknown): boolean => stateOf(error) === '23505'

interface HereParts {
  readonly db: Database
  readonly log: Log
  readonly deadForMs: number
  /** Of the receiver, whose messages are for each of them. */
  readonly writer: Writer
}

/** The branches of this process, and what becomes of removed branches. */
export class BranchesHere {
  /** What waits for branches that this process does not have. */
  left: readonly UnopenedInbox[] = []
  readonly #parts: HereParts
  #usedAtMs = -Infinity
  readonly #byName = new Map<string, PostgresBranch>()
  /** The branches with places, by name. */
  readonly #added = new Map<string, AddedBranch>()
  /** Gaps of branches that this process lacks: a receiver that has ended left them, and the signs of this one keep them for the next. */
  #gapsOfOthers: readonly BranchGap[] = []

  constructor(parts: HereParts) {
    this.#parts = parts
  }

  get all(): readonly PostgresBranch[] {
    return [...this.#byName.values()]
  }

  get(name: string): PostgresBranch | undefined {
    return this.#byName.get(name)
  }

  know(branch: PostgresBranch): void {
    this.#byName.set(branch.name, branch)
  }

  /** The gaps that no event reports yet. */
  get openGaps(): readonly BranchGap[] {
    const own = this.all.flatMap(({ name: branch, openGaps }) => openGaps.map((gap) => Object.assign({ branch }, gap)))
    return [...own, ...this.#gapsOfOthers]
  }

  /** A receiver that has ended left this gap. */
  adopt(gap: BranchGap): void {
    const branch = this.get(gap.branch)
    if (branch === undefined) this.#gapsOfOthers = [...this.#gapsOfOthers, gap]
    else branch.adopt(gap)
  }

  /** A process that lacks a branch of another one handles nothing: it would settle messages of the branch without its handlers. */
  get declared(): readonly string[] {
    return this.all.flatMap((branch) => [
      `branch ${branch.name}`,
      ...declaredBy(branch.handlers()).map((one) => `branch ${branch.name} ${one}`),
    ])
  }

  async addAll(): Promise<void> {
    for (const name of this.#byName.keys()) await this.add(name)
  }

  /** Gives a branch its places. `undefined`: not yet. */
  async add(name: string): Promise<AddedBranch | undefined> {
    const { db, writer } = this.#parts
    for (let tries = 1; !this.#added.has(name); tries += 1)
      try {
        const added = await addBranch(db, name)
        if (added === undefined) return undefined
        this.#added.set(name, added)
        writer.knows(added.number)
      } catch (error) {
        if (tries === mostTries || !isTaken(error)) throw error
      }
    return this.#added.get(name)
  }

  async tellLeft(): Promise<void> {
    const { db, log } = this.#parts
    this.left = await leftBranches(db, [...this.#byName.keys()])
    for (const { path, branch, messages, deadLetters } of this.left)
      log.warn(
        // What to do: Add the branch again, give what waits to another name with `fleethook branch rename`, or delete it with `fleethook branch drop`.
        `${messages} messages and ${deadLetters} dead letters wait for the branch ${String(branch)}, which the receiver of ${path} does not have`,
      )
  }

  /** Every minute, or more often. `isFirst`: this process does what one process is enough for, and it has all handlers of the others. */
  async tidy(isFirst: boolean, nowMs: number): Promise<void> {
    const { db, log, deadForMs } = this.#parts
    const names = [...this.#added.keys()]
    if (nowMs - this.#usedAtMs >= usedEveryMs) {
      await noteUsed(db, names)
      this.#usedAtMs = nowMs
    }
    if (!isFirst) return
    for (const branch of await noteGone(db, [...this.#byName.keys()], unusedMs))
      // What to do: Normal when you removed it. Messages wait until it is back, and a `gap` (`stopped`) then says since when it gets no new ones.
      log.warn('no process has this branch any more, so new messages are not for it', { branch })
    for (const branch of await branchesGoneBefore(db, nowMs - deadForMs)) {
      this.#gapsOfOthers = this.#gapsOfOthers.filter((gap) => gap.branch !== branch)
      // What to do: Nothing. No process had it for as long as dead letters are kept.
      log.warn('what waited for a removed branch was dropped', { branch, ...(await dropBranch(db, branch)) })
    }
  }
}
