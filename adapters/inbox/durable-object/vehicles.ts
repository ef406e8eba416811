import {
  type Due,
  dueColumn,
  type SentVehicle,
  type StoredVehicle,
  type VehicleStore,
} from '../../../src/inbox/vehicle-store.ts'
import { RecentVehicles } from '../../../src/vehicles/recent.ts'
import { pageOf } from '../../../src/base/pages.ts'
import type { Snapshot } from '../../../src/vehicles/state.ts'
import type { Row, Rows } from './rows.ts'

/** The room for states in memory. An object has 128 MB. */
const cacheBytes = 8 * 1_048_576

/**
 * Each state is written in the step that settles its message, so it is never ahead of or behind the settled messages.
 * One row for several messages would be cheaper, but all of them would be handled again when an object ends.
 */
export class ObjectVehicles implements VehicleStore {
  readonly #rows: Rows
  readonly #table: string
  readonly #recent = new RecentVehicles(cacheBytes)

  constructor(rows: Rows, table: string) {
    this.#rows = rows
    this.#table = table
  }

  async *due(): AsyncGenerator<readonly Due[]> {
    yield this.#rows(`SELECT vin, due FROM ${this.#table} WHERE due IS NOT NULL`).map(({ vin, due }) => ({
      vin: String(vin),
      dueMs: Number(due),
    }))
  }

  async *outdated(rules: string): AsyncGenerator<readonly StoredVehicle[]> {
    for (let after = ''; ;) {
      const page = this.#rows(
        `SELECT * FROM ${this.#table} WHERE vin > ? AND rules IS NOT ? ORDER BY vin LIMIT 500`,
        ...[after, rules],
      ).map(storedOf)
      const last = page.at(-1)?.vin
      if (last === undefined) return
      after = last
      yield page
    }
  }

  load(vin: string): StoredVehicle | undefined {
    const known = this.#recent.get(vin)
    if (known !== undefined) return known
    const [row] = this.#rows(`SELECT * FROM ${this.#table} WHERE vin = ?`, vin)
    if (row === undefined) return undefined
    const stored = storedOf(row)
    this.#recent.set(stored)
    return stored
  }

  keep(vehicle: StoredVehicle): void {
    const { vin, seq, seenMs } = vehicle
    this.#rows(
      `INSERT INTO ${this.#table} (vin, place, seen_at, due, rules, text) VALUES (?, ?, ?, ?, ?, ?)
       ON CONFLICT (vin) DO UPDATE SET place = ?2, seen_at = ?3, due = ?4, rules = ?5, text = ?6`,
      ...[vin, seq, seenMs, dueColumn(vehicle), vehicle.rules ?? null, vehicle.text()],
    )
    this.#recent.set(vehicle)
  }

  async list({ after = '', limit }: Parameters<VehicleStore['list']>[0]): Promise<readonly StoredVehicle[]> {
    return pageOf(this.#after(after), limit, ({ bytes }) => bytes)
  }

  async forget(vin: string): Promise<boolean> {
    return this.erase(vin)
  }

  /** Returns whether there was a state of it. */
  erase(vin: string): boolean {
    this.#recent.delete(vin)
    return this.#rows(`DELETE FROM ${this.#table} WHERE vin = ? RETURNING vin`, vin).length > 0
  }

  async forgetUnseen(ms: number): Promise<number> {
    const gone = this.#rows(`DELETE FROM ${this.#table} WHERE vin <> '' AND seen_at < ? RETURNING vin`, ms)
    for (const { vin } of gone) this.#recent.delete(String(vin))
    return gone.length
  }

  async count(): Promise<{ readonly vehicles: number; readonly unwritten: number }> {
    const [total] = this.#rows(`SELECT count(*) AS vehicles FROM ${this.#table} WHERE vin <> ''`)
    return { vehicles: Number(total?.['vehicles']), unwritten: 0 }
  }

  /** When the vehicle that was silent the longest was last seen, in milliseconds since the epoch. `undefined`: none. */
  oldestSeenMs(): number | undefined {
    const [oldest] = this.#rows(`SELECT min(seen_at) AS seen FROM ${this.#table} WHERE vin <> ''`)
    return typeof oldest?.['seen'] === 'number' ? oldest['seen'] : undefined
  }

  /** The place of the newest message that a state has seen. */
  newestPlace(): number | undefined {
    const [newest] = this.#rows(`SELECT max(place) AS place FROM ${this.#table}`)
    return typeof newest?.['place'] === 'number' ? newest['place'] : undefined
  }

  *#after(after: string): Generator<StoredVehicle> {
    for (let vin: string | undefined = after; vin !== undefined;) {
      const [row]: readonly Row[] = this.#rows(`SELECT * FROM ${this.#table} WHERE vin > ? ORDER BY vin LIMIT 1`, vin)
      if (row !== undefined) yield storedOf(row)
      vin = row === undefined ? undefined : String(row['vin'])
    }
  }
}

function storedOf(row: Row): StoredVehicle {
  const text = String(row['text'])
  const { vin, place, seen_at: seenAt, due, rules } = row
  return {
    vin: String(vin),
    seq: Number(place),
    seenMs: Number(seenAt),
    dueMs: due == null ? undefined : Number(due),
    rules: typeof rules === 'string' ? rules : undefined,
    bytes: text.length,
    text: () => text,
  }
}

export function reportOf(vehicle: Snapshot): SentVehicle {
  const { state, gapTo } = vehicle.parts()
  const { vin, seq, seenMs } = state
  return { vin, seq, seenMs: Number.isFinite(seenMs) ? seenMs : null, text: state.text(), gapTo }
}
