import { type Clock, pause, resolvedOr } from '../../../src/base/clock.ts'
import { type Log, throttled } from '../../../src/base/log.ts'
import { type Database, databaseError, despiteCuts, isFinal, stateOf } from './client.ts'
import { Handling } from './handling.ts'
import { type Lease, Leases } from './leases.ts'

/** A reader of the inbox in this process, as the partitions see it. */
export interface Tenant {
  /** Other processes may have these partitions. */
  lose(parts: readonly number[]): void
  /** Messages that were to start while the lease was over may start now. */
  gain(gained: readonly Lease[]): void
  /** How many messages of a partition are in hand. */
  inHand(part: number): number
  /** Nothing more starts in a partition that leaves, unless it is in hand. */
  setLeaving(part: number, isLeaving: boolean): void
  /** Resolves when nothing of these partitions is in hand, or when the time is over. */
  quietIn(parts: readonly number[], withinMs: number): Promise<void>
  /** Writes what has ended. */
  flush(withinMs: number): Promise<unknown>
  /** Whether nothing of a partition is in hand, or still to be written. */
  isDoneWith(part: number): boolean
  /** Whether all that this process and its owners before had in hand of a partition is written. */
  isClean(part: number): boolean
}

interface PartitionsOptions {
  readonly db: Database
  readonly clock: Clock
  readonly leaseMs: number
  /** Names this process. */
  readonly me: string
  /** The clock of this machine, which alone shows that the machine was suspended. */
  readonly local: Clock
  /** The number of tenants, also before all of them have joined. */
  readonly tenants: () => number
  /** What this process has handlers for: see `declaredBy`. */
  readonly declared: () => readonly string[]
  readonly log: Log
}

/** How long the last statements may take at a stop, in milliseconds. */
export const lastMs = 2_000
const againMs = 250

/**
 * The partitions of this process: one lease for the receiver and all of its branches, so one process has a vehicle for all of them. Each of these readers is
 * a tenant, and a partition goes to another process when all of them are done with it.
 */
export class Partitions {
  readonly #options: PartitionsOptions
  readonly #leases: Leases
  readonly #handling: Handling
  readonly #say: ReturnType<typeof throttled>
  readonly #tenants = new Set<Tenant>()
  /** What this process has, for tenants that come later. */
  readonly #leased = new Map<number, Lease>()
  /** Nothing new starts in them. */
  readonly #leaving = new Set<number>()
  /** A tenant that has quit has left something of them that is not written. */
  readonly #unclean = new Set<number>()
  #quits = 0
  readonly #closing = new AbortController()
  #opened: Promise<void> | undefined
  #loop: Promise<void> | undefined

  constructor(options: PartitionsOptions) {
    this.#options = options
    const { db, clock, leaseMs, me, local, declared, log } = options
    this.#say = throttled(log, clock)
    this.#handling = new Handling({ db, clock, leaseMs, declared })
    this.#leases = new Leases({ db, me, clock: local, leaseMs, renewed: (...all) => this.#renewed(...all) })
  }

  /** Names this process in the tables of leases. */
  get me(): string {
    return this.#leases.me
  }

  /** Whether no other process can have the partitions of this one. */
  get isFresh(): boolean {
    return this.#leases.isFresh
  }

  get mayHandle(): boolean {
    return this.#handling.mayHandle
  }

  /** How long no renewal has succeeded after the last lease was over, in milliseconds. */
  get overdueMs(): number {
    return this.#leases.overdueMs
  }

  /** A reader begins. The first one brings the leases. */
  async join(tenant: Tenant): Promise<void> {
    this.#tenants.add(tenant)
    tenant.gain([...this.#leased.values()])
    for (const part of this.#leaving) tenant.setLeaving(part, true)
    await (this.#opened ??= this.#open().catch((error: unknown) => {
      this.#opened = undefined
      throw error
    }))
  }

  /** A reader has stopped. The last one gives everything back. */
  async quit(tenant: Tenant): Promise<void> {
    if (!this.#tenants.delete(tenant)) return
    this.#quits += 1
    for (const part of this.#leased.keys()) if (!tenant.isClean(part)) this.#unclean.add(part)
    if (this.#tenants.size > 0) return
    const { clock } = this.#options
    this.#closing.abort()
    const opened = this.#opened?.catch(() => {})
    if (opened !== undefined) await resolvedOr(opened, clock, lastMs)
    if (this.#loop !== undefined) await resolvedOr(this.#loop, clock, lastMs)
    await this.#handling.end().catch((error: unknown) => this.#failed('a stop could not be written', error))
    await this.#release().catch((error: unknown) => this.#failed('leases could not be given back', error))
    this.#say.stop()
  }

  #release(): Promise<void> {
    return this.#leases.release(this.#uncleanOf([...this.#leased.keys()]))
  }

  /** Those whose next owner cannot go by what is written: its messages may have been in the hand of a process that ended. */
  #uncleanOf(parts: readonly number[]): readonly number[] {
    const areAllHere = this.#tenants.size + this.#quits >= this.#options.tenants()
    const isClean = (part: number): boolean =>
      !this.#unclean.has(part) &&
      (areAllHere || this.#leased.get(part)?.isClean === true) &&
      [...this.#tenants].every((tenant) => tenant.isClean(part))
    return parts.filter((part) => !isClean(part))
  }

  async #open(): Promise<void> {
    const lease = async (): Promise<void> => void ((await this.#checkHandling()) && (await this.#leases.renew()))
    await despiteCuts(lease).catch((error: unknown) => {
      if (isFinal(error)) throw error
      // The server is slow, which is no reason to end the process. The first loop asks again.
      this.#failed('leases could not be renewed', error)
    })
    this.#loop = this.#renewAll()
  }

  async #renewAll(): Promise<void> {
    const { clock } = this.#options
    const { signal } = this.#closing
    while (!signal.aborted) {
      let ms = againMs
      try {
        ms = await this.#renewOnce()
      } catch (error) {
        // What to do: See `reason`. Other processes may take over.
        if (!signal.aborted) this.#failed('leases could not be renewed', error)
      }
      await pause(clock, ms, signal).catch(() => {})
    }
  }

  /** Resolves to the pause before the next renewal, in milliseconds. */
  async #renewOnce(): Promise<number> {
    if (!(await this.#checkHandling())) return this.#options.leaseMs / 4
    const spare = await this.#leases.renew()
    if (this.#leases.isLocked) {
      await this.#moveOn()
      return 0
    }
    if (spare > 0) await this.#giveBack(spare)
    return this.#leases.everyMs
  }

  #renewed(lost: readonly number[], gained: readonly Lease[]): void {
    if (lost.length > 0) this.#lose(lost)
    for (const lease of gained) {
      this.#leased.set(lease.part, lease)
      // A tenant that has quit does not learn of it.
      if (lease.isClean || this.#quits === 0) this.#unclean.delete(lease.part)
      else this.#unclean.add(lease.part)
    }
    // Partitions that could not be given back are still here.
    for (const part of this.#leaving) this.#mark(part, false)
    for (const tenant of this.#tenants) tenant.gain(gained)
  }

  #lose(parts: readonly number[]): void {
    for (const part of parts) {
      this.#leased.delete(part)
      this.#leaving.delete(part)
    }
    for (const tenant of this.#tenants) tenant.lose(parts)
  }

  /** Handlers that run go on. A partition in which one runs for long stays until a later renewal. */
  async #giveBack(count: number): Promise<void> {
    const { leaseMs } = this.#options
    const inHand = (part: number): number => [...this.#tenants].reduce((sum, tenant) => sum + tenant.inHand(part), 0)
    const chosen = [...this.#leased.keys()].toSorted((one, other) => inHand(one) - inHand(other)).slice(0, count)
    for (const part of chosen) this.#mark(part, true)
    await this.#quiet(chosen, leaseMs / 5, Math.min(lastMs, leaseMs / 5))
    const left = chosen.filter((part) => [...this.#tenants].every((tenant) => tenant.isDoneWith(part)))
    for (const part of chosen) if (!left.includes(part)) this.#mark(part, false)
    if (left.length === 0) return
    await this.#leases.giveBack(left, this.#uncleanOf(left))
    this.#lose(left)
  }

  #mark(part: number, isLeaving: boolean): void {
    if (isLeaving) this.#leaving.add(part)
    else this.#leaving.delete(part)
    for (const tenant of this.#tenants) tenant.setLeaving(part, isLeaving)
  }

  async #quiet(parts: readonly number[], quietMs: number, flushMs: number): Promise<void> {
    const tenants = [...this.#tenants]
    await Promise.all(tenants.map((tenant) => tenant.quietIn(parts, quietMs)))
    await Promise.all(tenants.map((tenant) => tenant.flush(flushMs)))
  }

  /** Another session keeps the row of this process locked, so its lease would end, and nobody could take over. */
  async #moveOn(): Promise<void> {
    const { db } = this.#options
    // What to do: Its vehicles wait for up to a lease. [End the transaction](operating.md#postgres).
    this.#say.warn('another session has locked the row of this process, which goes on with a new one', {
      schema: db.schema,
    })
    await this.#giveBack(this.#leased.size)
    this.#lose([...this.#leased.keys()])
    await this.#leases.moveOn()
  }

  /** Whether no other process has handlers that this one lacks. If one has, this process gives everything back. */
  async #checkHandling(): Promise<boolean> {
    const { db, leaseMs } = this.#options
    const handling = this.#handling
    await handling.check()
    if (handling.mayHandle) {
      if (handling.isNews && handling.waiting.length > 0)
        // What to do: Normal in a deploy: the other process lacks handlers.
        this.#say.warn('another process of this schema waits, because its handlers differ', {
          lacksHere: handling.waiting.join(', '),
        })
      return true
    }
    if (handling.isNews)
      // What to do: Normal in a deploy. Otherwise [give each application its own schema](several-machines.md#the-same-handlers-in-every-process).
      this.#say.error('this process handles nothing: it lacks handlers that others of this schema have', {
        schema: db.schema,
        lacks: handling.lacks.join(', '),
      })
    if (this.#leased.size > 0) {
      const parts = [...this.#leased.keys()]
      await this.#quiet(parts, leaseMs / 2, lastMs)
      await this.#leases.giveBack(parts, this.#uncleanOf(parts))
      this.#lose(parts)
    }
    return false
  }

  // What to do about `leases could not be given back`, `a stop could not be written`: The inbox tries again. If the process ends before that, messages are
  // handled again.
  #failed(what: string, error: unknown): void {
    const { code, message } = databaseError(error)
    this.#say.warn(what, { code, state: stateOf(error), reason: message })
  }

  /** Whether this process does what one process is enough for. */
  get isFirst(): boolean {
    return this.#leased.has(0)
  }
}
