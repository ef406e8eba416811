import { backgroundTimer, type Clock, type Timer } from '../../../src/base/clock.ts'
import { firstSeqAt, msOfSeq } from '../../../src/inbox/delivery-id.ts'
import { pageBytes } from '../../../src/base/pages.ts'
import type { StoredVehicle, VehicleStore } from '../../../src/inbox/vehicle-store.ts'
import { RecentVehicles } from '../../../src/vehicles/recent.ts'
import type { InboxFile, OpenedVehicles, VehicleRow, VehicleWrites } from './file/interface.ts'

/** States of vehicles on their way into the file. Each commit takes from here the states that it writes. */
export interface VehicleRows {
  readonly store: VehicleStore
  begin(found: OpenedVehicles): void
  /** The messages that earlier processes settled up to this `seq` are applied now. */
  recovered(seq: number): void
  /** A message is settled or given up, which leads to this state. Call it before the commit that writes the message. */
  settled(seq: number, vehicle: StoredVehicle): void
  /** The states that the next commit writes. It also has to write everything that was settled so far. */
  take(): VehicleWrites | undefined
  written(writes: VehicleWrites): void
  /** The commit failed, so the states have to be written again. */
  giveBack(writes: VehicleWrites): void
  /** Whether a commit has to write something now. */
  readonly isDue: boolean
  /** The inbox is closing, so everything has to be written. */
  finish(): void
  /** The file was replaced by a new one with everything that could be read, so the states are written again. */
  rewrite(): void
}

interface VehicleRowsOptions {
  readonly file: Pick<
    InboxFile,
    'vehicle' | 'vehicles' | 'dueVehicles' | 'outdatedVehicles' | 'countVehicles' | 'removeUnseen'
  >
  readonly clock: Clock
  /** Starts a commit, and resolves when it is done. */
  readonly commit: () => Promise<void>
  /** Runs a call that reads the file. An error there makes the inbox unavailable. */
  readonly read: <T>(call: () => Promise<T>) => Promise<T>
  /** A state cannot be written as text, so the file keeps the older one. */
  readonly onFailure: (error: unknown) => void
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

/**
 * States are written in rounds, some with each commit, because writing a state with each message would cost more than the
 * message. When a round is complete, everything that was settled when it began is in the file, and the file has the `seq` up
 * to which that is so. After a crash, messages that were settled later are applied again. So when a message is settled late,
 * after newer ones up to `seq`, its state goes into the same commit.
 */
export function createVehicleRows({ file, clock, commit, read, onFailure }: VehicleRowsOptions): VehicleRows {
  const dirty = new Map<string, StoredVehicle>()
  const writing = new Map<string, StoredVehicle>()
  /** States that have to be in the next commit. */
  const late = new Set<string>()
  const forgotten = new Set<string>()
  /** The vehicles that the round still has to write, and the `seq` up to which the file is complete after it. */
  let round: { readonly vins: Set<string>; readonly seq: number } | undefined
  const recent = new RecentVehicles(cacheBytes)
  /** The size of the changes since the last round began. */
  let changedBytes = 0
  let newestSettled = -1
  let upTo = -1
  /** Everything settled up to this `seq` is in the file, or will be when the round is complete. */
  let roundSeq = -1
  let isFinishing = false
  let timer: Timer | undefined

  const isDue = (): boolean =>
    late.size > 0 || forgotten.size > 0 || round !== undefined || (isFinishing && dirty.size > 0)

  function beginRound(): void {
    timer?.cancel()
    timer = undefined
    // A round begins even without a state to write: the file has to say that the settled messages of forgotten vehicles need
    // not be applied again.
    if (round !== undefined || (dirty.size === 0 && newestSettled <= roundSeq)) return
    round = { vins: new Set(dirty.keys()), seq: newestSettled }
    roundSeq = newestSettled
    changedBytes = 0
  }

  function change(vehicle: StoredVehicle): void {
    changedBytes += vehicle.bytes
    dirty.set(vehicle.vin, vehicle)
    forgotten.delete(vehicle.vin)
    // Gaps of all vehicles: they are in the file before any message after them is settled.
    if (vehicle.vin === '') late.add('')
    if (changedBytes > roundBytes && round === undefined) startRound()
    else timer ??= backgroundTimer(clock, roundMs, startRound)
  }

  function startRound(): void {
    beginRound()
    // If the commit fails, a later one writes the state.
    void commit().catch(() => {})
  }

  /** Writes everything, with as many commits as it takes. */
  async function writeAll(): Promise<void> {
    while (round !== undefined) await commit()
    beginRound()
    while (isDue()) await commit()
  }

  const here = (vin: string): StoredVehicle | undefined => dirty.get(vin) ?? writing.get(vin) ?? recent.get(vin)

  async function load(vin: string): Promise<StoredVehicle | undefined> {
    const row = await read(() => file.vehicle(vin))
    // Something newer may have come while the file was read.
    if (row === undefined || forgotten.has(vin)) return undefined
    const known = here(vin)
    if (known !== undefined) return known
    const stored = storedOf(row)
    recent.set(stored)
    return stored
  }

  const store: VehicleStore = {
    async *due() {
      for (let after = ''; ;) {
        const page = await read(() => file.dueVehicles(after))
        const last = page.at(-1)?.vin
        if (last === undefined) break
        after = last
        yield page.filter(({ vin }) => !dirty.has(vin) && !writing.has(vin) && !forgotten.has(vin))
      }
      yield [...writing.values(), ...dirty.values()].flatMap(({ vin, dueMs }) =>
        dueMs === undefined ? [] : [{ vin, dueMs }],
      )
    },
    async *outdated(rules) {
      for (let after = ''; ;) {
        const page = await read(() => file.outdatedVehicles(rules, after))
        const last = page.at(-1)?.vin
        if (last === undefined) break
        after = last
        yield page.filter(({ vin }) => !dirty.has(vin) && !writing.has(vin) && !forgotten.has(vin)).map(storedOf)
      }
      yield [...writing.values(), ...dirty.values()].filter((state) => state.vin !== '' && state.rules !== rules)
    },
    load(vin) {
      if (forgotten.has(vin)) return undefined
      return here(vin) ?? load(vin)
    },
    keep: change,
    async list({ after = '', limit }) {
      const page: StoredVehicle[] = []
      let bytes = 0
      for (let from = after; ;) {
        const rows = await read(() => file.vehicles(from, limit))
        const last = rows.at(-1)?.vin
        const found = new Map(rows.map((row) => [row.vin, storedOf(row)]))
        // What is after the last row is read next.
        for (const [vin, vehicle] of [...writing, ...dirty])
          if (vin > from && (last === undefined || vin <= last)) found.set(vin, vehicle)
        for (const vin of forgotten) found.delete(vin)
        page.push(...[...found.values()].toSorted((a, b) => (a.vin < b.vin ? -1 : 1)))
        for (const { text } of rows) bytes += text.length
        if (last === undefined || page.length >= limit || (bytes >= pageBytes && page.length > 0))
          return page.slice(0, limit)
        from = last
      }
    },
    async forget(vin) {
      const known = (await store.load(vin)) !== undefined
      dirty.delete(vin)
      late.delete(vin)
      recent.delete(vin)
      forgotten.add(vin)
      // After this, no message that was settled before is applied again.
      await writeAll()
      return known
    },
    async forgetUnseen(ms) {
      let removed = 0
      const step = (): Promise<number> => read(() => file.removeUnseen(ms))
      for (let some = await step(); some > 0; some = await step()) removed += some
      for (const { vin, seenMs } of recent.values()) if (seenMs < ms) recent.delete(vin)
      return removed
    },
    async count() {
      const unwritten = dirty.size
      await writeAll()
      return { vehicles: await read(file.countVehicles), unwritten }
    },
  }

  return {
    store,

    begin(found) {
      upTo = found.upTo
      roundSeq = Math.max(roundSeq, found.seq)
      newestSettled = Math.max(newestSettled, found.seq)
    },

    recovered(seq) {
      newestSettled = Math.max(newestSettled, seq)
    },

    settled(seq, vehicle) {
      if (seq > newestSettled) newestSettled = seq
      change(vehicle)
      if (seq <= roundSeq) late.add(vehicle.vin)
    },

    take() {
      if (isFinishing) beginRound()
      const isAhead = newestSettled > upTo
      if (!isAhead && !isDue()) return undefined
      const rows: VehicleRow[] = []
      let bytes = 0
      const add = (vin: string): void => {
        const vehicle = dirty.get(vin)
        round?.vins.delete(vin)
        if (vehicle === undefined) return
        dirty.delete(vin)
        try {
          const text = vehicle.text()
          bytes += text.length
          rows.push({ vin, seq: vehicle.seq, seenMs: vehicle.seenMs, text })
          writing.set(vin, vehicle)
        } catch (error) {
          onFailure(error)
        }
      }
      for (const vin of late) add(vin)
      late.clear()
      for (const vin of round?.vins ?? []) {
        if (rows.length >= rowsAtOnce || bytes >= bytesAtOnce) break
        add(vin)
      }
      const isComplete = round?.vins.size === 0
      const writes: VehicleWrites = {
        rows,
        forgotten: [...forgotten],
        seq: isComplete ? round?.seq : undefined,
        upTo: isAhead ? firstSeqAt(msOfSeq(newestSettled) + aheadMs) : undefined,
      }
      if (isComplete) round = undefined
      return writes
    },

    written({ upTo: newUpTo, forgotten: gone }) {
      for (const [vin, vehicle] of writing) if (!forgotten.has(vin)) recent.set(vehicle)
      writing.clear()
      for (const vin of gone) forgotten.delete(vin)
      if (newUpTo !== undefined) upTo = newUpTo
    },

    giveBack({ rows, seq }) {
      for (const { vin } of rows) {
        const vehicle = writing.get(vin)
        if (vehicle === undefined) continue
        if (!dirty.has(vin)) dirty.set(vin, vehicle)
        late.add(vin)
      }
      writing.clear()
      if (seq !== undefined) round ??= { vins: new Set(rows.map(({ vin }) => vin)), seq }
    },

    get isDue() {
      return isDue()
    },

    finish() {
      isFinishing = true
      timer?.cancel()
    },

    rewrite() {
      for (const vehicle of recent.values())
        if (!dirty.has(vehicle.vin) && !forgotten.has(vehicle.vin)) dirty.set(vehicle.vin, vehicle)
      round = undefined
      beginRound()
    },
  }
}

function storedOf({ vin, seq, seenMs, text }: VehicleRow): StoredVehicle {
  return { vin, seq, seenMs, bytes: text.length, text: () => text }
}
