import { backgroundTimer, type Clock, type Timer } from '../../../src/base/clock.ts'
import { firstSeqAt, msOfSeq } from '../../../src/inbox/delivery-id.ts'
import { pageBytes } from '../../../src/base/pages.ts'
import type { StoredVehicle, VehicleStore } from '../../../src/inbox/vehicle-store.ts'
import { RecentVehicles } from '../../../src/vehicles/recent.ts'
import type { InboxFile, OpenedVehicles, VehicleRow, VehicleWrites } from './file/interface.ts'

interface StateRowsParts {
  readonly file: Pick<
    InboxFile,
    'vehicle' | 'vehicles' | 'dueVehicles' | 'outdatedVehicles' | 'countVehicles' | 'removeUnseen'
  >
  readonly clock: Clock
  /** `flush` starts a commit, and resolves when it is done. */
  readonly commits: { flush(): Promise<void> }
  /** `read` runs a call that reads the file. An error there makes the inbox unavailable. */
  readonly health: { read<T>(call: () => Promise<T>): Promise<T> }
  /** A state cannot be written as text, so the file keeps the older one. */
  readonly failed: (error: unknown) => void
}

/** The longest that a state waits until a round of writing begins. */
const roundMs = 5_000
/** The most rows of one commit and their size, unless they have to be in it: about the time of a commit. */
const rowsAtOnce = 256
const bytesAtOnce = 1_048_576
/** How far `upTo` is ahead of the settled messages, so that not every commit has to write it. */
const aheadMs = 10_000
/** After changes of this size, a round of writing begins at once: until then, the states are in memory. */
const roundBytes = 64 * 1_048_576
const cacheBytes = 128 * 1_048_576

/** The vehicles that a round still has to write, and the `seq` up to which the file is complete after it. */
interface Round {
  readonly vins: Set<string>
  readonly seq: number
}

/**
 * States of vehicles on their way into the file. Each commit takes from here the states that it writes.
 *
 * They are written in rounds, some with each commit, because writing a state with each message would cost more than the message. When a
 * round is complete, everything that was settled when it began is in the file, and the file has the `seq` up to which that is so. After a
 * crash, messages that were settled later are applied again. So when a message is settled late, after newer ones up to `seq`, its state
 * goes into the same commit.
 *
 * A state is dirty (changed since it was written), then being written (in a commit), then recent (read again without the file). A failed
 * commit makes it dirty again, and late: the next commit has to write it.
 */
export class StateRows implements VehicleStore {
  readonly #parts: StateRowsParts
  readonly #dirty = new Map<string, StoredVehicle>()
  readonly #writing = new Map<string, StoredVehicle>()
  readonly #recent = new RecentVehicles(cacheBytes)
  /** States that have to be in the next commit. */
  readonly #late = new Set<string>()
  readonly #forgotten = new Set<string>()
  #round: Round | undefined
  /** Everything settled up to this `seq` is in the file, or will be when the round is complete. */
  #roundSeq = -1
  /** The size of the changes since the last round began. */
  #changedBytes = 0
  #newestSettled = -1
  #upTo = -1
  #isFinishing = false
  #timer: Timer | undefined

  constructor(parts: StateRowsParts) {
    this.#parts = parts
  }

  begin(found: OpenedVehicles): void {
    this.#upTo = found.upTo
    this.#roundSeq = Math.max(this.#roundSeq, found.seq)
    this.recovered(found.seq)
  }

  /** The messages that earlier processes settled up to this `seq` are applied now. */
  recovered(seq: number): void {
    this.#newestSettled = Math.max(this.#newestSettled, seq)
  }

  /** A message is settled or given up, which leads to this state. Call it before the commit that writes the message. */
  settled(seq: number, vehicle: StoredVehicle): void {
    if (seq > this.#newestSettled) this.#newestSettled = seq
    this.keep(vehicle)
    if (seq <= this.#roundSeq) this.#late.add(vehicle.vin)
  }

  /** Whether a commit has to write something now. */
  get isDue(): boolean {
    const hasToWrite = this.#late.size > 0 || this.#forgotten.size > 0 || this.#round !== undefined
    return hasToWrite || (this.#isFinishing && this.#dirty.size > 0)
  }

  /** The states that the next commit writes. It also has to write everything that was settled so far. */
  take(): VehicleWrites | undefined {
    if (this.#isFinishing) this.#beginRound()
    const isAhead = this.#newestSettled > this.#upTo
    if (!isAhead && !this.isDue) return undefined
    const rows: VehicleRow[] = []
    let bytes = 0
    const add = (vin: string): void => {
      const row = this.#rowOf(vin)
      if (row === undefined) return
      bytes += row.text.length
      rows.push(row)
    }
    for (const vin of this.#late) add(vin)
    this.#late.clear()
    for (const vin of this.#round?.vins ?? []) {
      if (rows.length >= rowsAtOnce || bytes >= bytesAtOnce) break
      add(vin)
    }
    const isComplete = this.#round?.vins.size === 0
    const writes: VehicleWrites = {
      rows,
      forgotten: [...this.#forgotten],
      seq: isComplete ? this.#round?.seq : undefined,
      upTo: isAhead ? firstSeqAt(msOfSeq(this.#newestSettled) + aheadMs) : undefined,
    }
    if (isComplete) this.#round = undefined
    return writes
  }

  written({ upTo, forgotten: gone }: VehicleWrites): void {
    for (const [vin, vehicle] of this.#writing) if (!this.#forgotten.has(vin)) this.#recent.set(vehicle)
    this.#writing.clear()
    for (const vin of gone) this.#forgotten.delete(vin)
    if (upTo !== undefined) this.#upTo = upTo
  }

  /** The commit failed, so the states have to be written again. */
  giveBack({ rows, seq }: VehicleWrites): void {
    for (const { vin } of rows) {
      const vehicle = this.#writing.get(vin)
      if (vehicle === undefined) continue
      if (!this.#dirty.has(vin)) this.#dirty.set(vin, vehicle)
      this.#late.add(vin)
    }
    this.#writing.clear()
    if (seq !== undefined) this.#round ??= { vins: new Set(rows.map(({ vin }) => vin)), seq }
  }

  /** The inbox is closing, so everything has to be written. */
  finish(): void {
    this.#isFinishing = true
    this.#timer?.cancel()
  }

  /** The file was replaced by a new one with everything that could be read, so the states are written again. */
  rewrite(): void {
    for (const vehicle of this.#recent.values())
      if (!this.#dirty.has(vehicle.vin) && !this.#forgotten.has(vehicle.vin)) this.#dirty.set(vehicle.vin, vehicle)
    this.#round = undefined
    this.#beginRound()
  }

  async *due(): ReturnType<VehicleStore['due']> {
    const { file, health } = this.#parts
    for (let after = ''; ;) {
      const page = await health.read(() => file.dueVehicles(after))
      const last = page.at(-1)?.vin
      if (last === undefined) break
      after = last
      yield page.filter(({ vin }) => this.#isOnlyInFile(vin))
    }
    yield [...this.#writing.values(), ...this.#dirty.values()].flatMap(({ vin, dueMs }) =>
      dueMs === undefined ? [] : [{ vin, dueMs }],
    )
  }

  async *outdated(rules: string): ReturnType<VehicleStore['outdated']> {
    const { file, health } = this.#parts
    for (let after = ''; ;) {
      const page = await health.read(() => file.outdatedVehicles(rules, after))
      const last = page.at(-1)?.vin
      if (last === undefined) break
      after = last
      yield page.filter(({ vin }) => this.#isOnlyInFile(vin)).map(storedOf)
    }
    const here = [...this.#writing.values(), ...this.#dirty.values()]
    yield here.filter((state) => state.vin !== '' && state.rules !== rules)
  }

  load(vin: string): StoredVehicle | undefined | Promise<StoredVehicle | undefined> {
    if (this.#forgotten.has(vin)) return undefined
    return this.#here(vin) ?? this.#read(vin)
  }

  keep(vehicle: StoredVehicle): void {
    this.#changedBytes += vehicle.bytes
    this.#dirty.set(vehicle.vin, vehicle)
    this.#forgotten.delete(vehicle.vin)
    // Gaps of all vehicles: they are in the file before any message after them is settled.
    if (vehicle.vin === '') this.#late.add('')
    if (this.#changedBytes > roundBytes && this.#round === undefined) this.#startRound()
    else this.#timer ??= backgroundTimer(this.#parts.clock, roundMs, () => this.#startRound())
  }

  async list({ after = '', limit }: Parameters<VehicleStore['list']>[0]): Promise<readonly StoredVehicle[]> {
    const { file, health } = this.#parts
    const page: StoredVehicle[] = []
    let bytes = 0
    for (let from = after; ;) {
      const rows = await health.read(() => file.vehicles(from, limit))
      const last = rows.at(-1)?.vin
      const found = new Map(rows.map((row) => [row.vin, storedOf(row)]))
      const inFile = found.size
      // What is after the last row is read next.
      for (const changed of [this.#writing, this.#dirty])
        for (const [vin, vehicle] of changed)
          if (vin > from && (last === undefined || vin <= last)) found.set(vin, vehicle)
      const isInOrder = found.size === inFile
      for (const vin of this.#forgotten) found.delete(vin)
      const all = [...found.values()]
      page.push(...(isInOrder ? all : all.toSorted((a, b) => (a.vin < b.vin ? -1 : 1))))
      for (const { text } of rows) bytes += text.length
      if (last === undefined || page.length >= limit || (bytes >= pageBytes && page.length > 0))
        return page.slice(0, limit)
      from = last
    }
  }

  async forget(vin: string): Promise<boolean> {
    const known = (await this.load(vin)) !== undefined
    this.#dirty.delete(vin)
    this.#late.delete(vin)
    this.#recent.delete(vin)
    this.#forgotten.add(vin)
    // After this, no message that was settled before is applied again.
    await this.#writeAll()
    return known
  }

  async forgetUnseen(ms: number): Promise<number> {
    const { file, health } = this.#parts
    let removed = 0
    const step = (): Promise<number> => health.read(() => file.removeUnseen(ms))
    for (let some = await step(); some > 0; some = await step()) removed += some
    for (const { vin, seenMs } of this.#recent.values()) if (seenMs < ms) this.#recent.delete(vin)
    return removed
  }

  async count(): ReturnType<VehicleStore['count']> {
    const { file, health } = this.#parts
    const unwritten = this.#dirty.size
    await this.#writeAll()
    return { vehicles: await health.read(() => file.countVehicles()), unwritten }
  }

  #here(vin: string): StoredVehicle | undefined {
    return this.#dirty.get(vin) ?? this.#writing.get(vin) ?? this.#recent.get(vin)
  }

  #isOnlyInFile(vin: string): boolean {
    return !this.#dirty.has(vin) && !this.#writing.has(vin) && !this.#forgotten.has(vin)
  }

  async #read(vin: string): Promise<StoredVehicle | undefined> {
    const { file, health } = this.#parts
    const row = await health.read(() => file.vehicle(vin))
    // Something newer may have come while the file was read.
    if (row === undefined || this.#forgotten.has(vin)) return undefined
    const known = this.#here(vin)
    if (known !== undefined) return known
    const stored = storedOf(row)
    this.#recent.set(stored)
    return stored
  }

  /** The row of a changed state, which is being written from now on. `undefined`: it has not changed, or cannot be written. */
  #rowOf(vin: string): VehicleRow | undefined {
    const vehicle = this.#dirty.get(vin)
    this.#round?.vins.delete(vin)
    if (vehicle === undefined) return undefined
    this.#dirty.delete(vin)
    try {
      const { seq, seenMs, dueMs, rules } = vehicle
      const row = { vin, seq, seenMs, dueMs, rules, text: vehicle.text() }
      this.#writing.set(vin, vehicle)
      return row
    } catch (error) {
      this.#parts.failed(error)
      return undefined
    }
  }

  #beginRound(): void {
    this.#timer?.cancel()
    this.#timer = undefined
    // A round begins even without a state to write: the file has to say that the settled messages of forgotten vehicles need
    // not be applied again.
    const isNothingNew = this.#dirty.size === 0 && this.#newestSettled <= this.#roundSeq
    if (this.#round !== undefined || isNothingNew) return
    this.#round = { vins: new Set(this.#dirty.keys()), seq: this.#newestSettled }
    this.#roundSeq = this.#newestSettled
    this.#changedBytes = 0
  }

  #startRound(): void {
    this.#beginRound()
    // If the commit fails, a later one writes the state.
    void this.#parts.commits.flush().catch(() => {})
  }

  /** Writes everything, with as many commits as it takes. */
  async #writeAll(): Promise<void> {
    const { commits } = this.#parts
    while (this.#round !== undefined) await commits.flush()
    this.#beginRound()
    while (this.isDue) await commits.flush()
  }
}

function storedOf({ vin, seq, seenMs, dueMs, rules, text }: VehicleRow): StoredVehicle {
  return { vin, seq, seenMs, dueMs, rules, bytes: text.length, text: () => text }
}
