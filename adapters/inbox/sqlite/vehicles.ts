import { backgroundTimer, type Clock, type Timer } from '../../../src/base/clock.ts'
import { firstSeqAt, msOfSeq } from '../../../src/inbox/delivery-id.ts'
import type { StoredVehicle, VehicleStore } from '../../../src/inbox/vehicle-store.ts'
import type { InboxFile, OpenedVehicles, VehicleRow, VehicleWrites } from './file/interface.ts'

/** States of vehicles on their way into the file. Commits take from here what they write. */
export interface VehicleRows {
  readonly store: VehicleStore
  /** The file was opened. */
  begin(found: OpenedVehicles): void
  /** What earlier processes settled up to this `seq` is applied now. */
  recovered(seq: number): void
  /** A message is settled or given up, with this state. To be called before the commit that writes it. */
  settled(seq: number, vehicle: StoredVehicle): void
  /** What the next commit writes beside everything settled so far. */
  take(): VehicleWrites | undefined
  written(writes: VehicleWrites): void
  /** The commit failed: they are to be written again. */
  giveBack(writes: VehicleWrites): void
  /** Whether a commit has to write something now. */
  readonly isDue: boolean
  /** Everything is to be written now: the inbox closes. */
  finish(): void
  /** The file is a new one, with what could be read of the old one. */
  rewrite(): void
}

interface VehicleRowsOptions {
  readonly file: Pick<InboxFile, 'vehicle' | 'vehicles' | 'countVehicles' | 'removeUnseen'>
  readonly clock: Clock
  /** Starts a commit, and resolves when it is done. */
  readonly commit: () => Promise<void>
  /** Runs a call that reads the file. An error there makes the inbox unavailable. */
  readonly read: <T>(call: () => Promise<T>) => Promise<T>
}

/** The longest that a state waits until a round of writing begins. */
const roundMs = 5_000
/** The most rows of one commit, unless they have to be in it: about the time of a commit. */
const rowsAtOnce = 256
/** How far ahead of the settled messages the file says that nothing is settled, so that it need not say so at each commit. */
const aheadMs = 10_000
/** The most states in memory, beside those that are to be written: twice this number. */
const mostCached = 50_000

/**
 * States are written in rounds, some with each commit, because writing one with each message would cost more than the message. When a
 * round is complete, everything that was settled when it began is in the file, and the file says so: `seq`. After a crash, messages that
 * were settled later are applied again. So a message that is settled although it came before `seq` takes its state into its own commit.
 */
export function createVehicleRows({ file, clock, commit, read }: VehicleRowsOptions): VehicleRows {
  const dirty = new Map<string, StoredVehicle>()
  const writing = new Map<string, StoredVehicle>()
  /** States that have to be in the next commit. */
  const late = new Set<string>()
  const forgotten = new Set<string>()
  /** What the round still has to write, and what is in the file after it. */
  let round: { readonly vins: Set<string>; readonly seq: number } | undefined
  let recent = new Map<string, StoredVehicle>()
  let older = new Map<string, StoredVehicle>()
  let newestSettled = -1
  let upTo = -1
  /** Everything settled up to this `seq` is in the file, or will be when the round is complete. */
  let roundSeq = -1
  let isFinishing = false
  let timer: Timer | undefined

  const isDue = (): boolean =>
    late.size > 0 || forgotten.size > 0 || round !== undefined || (isFinishing && dirty.size > 0)

  function remember(vehicle: StoredVehicle): void {
    recent.set(vehicle.vin, vehicle)
    if (recent.size < mostCached) return
    older = recent
    recent = new Map()
  }

  function beginRound(): void {
    timer?.cancel()
    timer = undefined
    // Without a state to write, too: the file has to say that settled messages of forgotten vehicles need not be applied again.
    if (round !== undefined || (dirty.size === 0 && newestSettled <= roundSeq)) return
    round = { vins: new Set(dirty.keys()), seq: newestSettled }
    roundSeq = newestSettled
  }

  function change(vehicle: StoredVehicle): void {
    dirty.set(vehicle.vin, vehicle)
    forgotten.delete(vehicle.vin)
    timer ??= backgroundTimer(clock, roundMs, () => {
      beginRound()
      // It stays to be written when the commit fails.
      void commit().catch(() => {})
    })
  }

  /** Writes everything, with as many commits as it takes. */
  async function writeAll(): Promise<void> {
    while (round !== undefined) await commit()
    beginRound()
    while (isDue()) await commit()
  }

  const here = (vin: string): StoredVehicle | undefined =>
    dirty.get(vin) ?? writing.get(vin) ?? recent.get(vin) ?? older.get(vin)

  async function load(vin: string): Promise<StoredVehicle | undefined> {
    const row = await read(() => file.vehicle(vin))
    // Something newer may have come while the file was read.
    if (row === undefined || forgotten.has(vin)) return undefined
    const known = here(vin)
    if (known !== undefined) return known
    const stored = storedOf(row)
    remember(stored)
    return stored
  }

  const store: VehicleStore = {
    load(vin) {
      if (forgotten.has(vin)) return undefined
      return here(vin) ?? load(vin)
    },
    keep: change,
    async list({ after = '', limit }) {
      const rows = await read(() => file.vehicles(after, limit + forgotten.size))
      const found = new Map(rows.map((row) => [row.vin, storedOf(row)]))
      for (const [vin, vehicle] of [...writing, ...dirty]) if (vin > after) found.set(vin, vehicle)
      for (const vin of forgotten) found.delete(vin)
      // What follows the rows that were read is behind `limit`.
      return [...found.values()].toSorted((a, b) => (a.vin < b.vin ? -1 : 1)).slice(0, limit)
    },
    async forget(vin) {
      const known = (await store.load(vin)) !== undefined
      dirty.delete(vin)
      late.delete(vin)
      recent.delete(vin)
      older.delete(vin)
      forgotten.add(vin)
      // After this, no message that was settled before is applied again.
      await writeAll()
      return known
    },
    async forgetUnseen(ms) {
      let removed = 0
      const step = (): Promise<number> => read(() => file.removeUnseen(ms))
      for (let some = await step(); some > 0; some = await step()) removed += some
      for (const cache of [recent, older]) for (const [vin, { seenMs }] of cache) if (seenMs < ms) cache.delete(vin)
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
      const add = (vin: string): void => {
        const vehicle = dirty.get(vin)
        round?.vins.delete(vin)
        if (vehicle === undefined) return
        dirty.delete(vin)
        writing.set(vin, vehicle)
        rows.push({ vin, seq: vehicle.seq, seenMs: vehicle.seenMs, text: vehicle.text() })
      }
      for (const vin of late) add(vin)
      late.clear()
      for (const vin of round?.vins ?? []) {
        if (rows.length >= rowsAtOnce) break
        add(vin)
      }
      const isComplete = round !== undefined && round.vins.size === 0
      const writes: VehicleWrites = {
        rows,
        forgotten: [...forgotten],
        ...(isComplete && round !== undefined ? { seq: round.seq } : {}),
        ...(isAhead ? { upTo: firstSeqAt(msOfSeq(newestSettled) + aheadMs) } : {}),
      }
      if (isComplete) round = undefined
      return writes
    },

    written({ upTo: newUpTo, forgotten: gone }) {
      for (const [vin, vehicle] of writing) if (!forgotten.has(vin)) remember(vehicle)
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
      for (const vehicle of [...older.values(), ...recent.values()])
        if (!dirty.has(vehicle.vin) && !forgotten.has(vehicle.vin)) dirty.set(vehicle.vin, vehicle)
      round = undefined
      beginRound()
    },
  }
}

function storedOf({ vin, seq, seenMs, text }: VehicleRow): StoredVehicle {
  return { vin, seq, seenMs, text: () => text }
}
