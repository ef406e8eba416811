import { dueColumn, type SentVehicle, type StoredVehicle, type VehicleStore } from '../../../src/inbox/vehicle-store.ts'
import { RecentVehicles } from '../../../src/vehicles/recent.ts'
import { pageOf } from '../../../src/base/pages.ts'
import type { Snapshot } from '../../../src/vehicles/state.ts'
import type { Row, Rows } from './rows.ts'

export interface ObjectVehicles extends VehicleStore {
  load(vin: string): StoredVehicle | undefined
  /** When the vehicle that was silent the longest was last seen, in milliseconds since the epoch. `undefined`: none. */
  oldestSeenMs(): number | undefined
}

/** The room for states in memory. An object has 128 MB. */
const cacheBytes = 8 * 1_048_576

/**
 * Each state is written in the step that settles its message, so it is never ahead of or behind the settled messages.
 * One row for several messages would be cheaper, but all of them would be handled again when an object ends.
 */
export function createObjectVehicles(rows: Rows): ObjectVehicles {
  const recent = new RecentVehicles(cacheBytes)

  function read(vin: string): StoredVehicle | undefined {
    const [row] = rows('SELECT * FROM fleethook_vehicles WHERE vin = ?', vin)
    if (row === undefined) return undefined
    const stored = storedOf(row)
    recent.set(stored)
    return stored
  }

  return {
    async *due() {
      yield rows('SELECT vin, due FROM fleethook_vehicles WHERE due IS NOT NULL').map(({ vin, due }) => ({
        vin: String(vin),
        dueMs: Number(due),
      }))
    },

    async *outdated(rules) {
      for (let after = ''; ;) {
        const page = rows(
          'SELECT * FROM fleethook_vehicles WHERE vin > ? AND rules IS NOT ? ORDER BY vin LIMIT 500',
          ...[after, rules],
        ).map(storedOf)
        const last = page.at(-1)?.vin
        if (last === undefined) return
        after = last
        yield page
      }
    },

    load: (vin) => recent.get(vin) ?? read(vin),

    keep(vehicle) {
      const { vin, seq, seenMs } = vehicle
      rows(
        `INSERT INTO fleethook_vehicles (vin, place, seen_at, due, rules, text) VALUES (?, ?, ?, ?, ?, ?)
         ON CONFLICT (vin) DO UPDATE SET place = ?2, seen_at = ?3, due = ?4, rules = ?5, text = ?6`,
        ...[vin, seq, seenMs, dueColumn(vehicle), vehicle.rules ?? null, vehicle.text()],
      )
      recent.set(vehicle)
    },

    async list({ after = '', limit }) {
      function* found(): Generator<StoredVehicle> {
        for (let vin: string | undefined = after; vin !== undefined;) {
          const [row]: readonly Row[] = rows('SELECT * FROM fleethook_vehicles WHERE vin > ? ORDER BY vin LIMIT 1', vin)
          if (row !== undefined) yield storedOf(row)
          vin = row === undefined ? undefined : String(row['vin'])
        }
      }
      return pageOf(found(), limit, ({ bytes }) => bytes)
    },

    async forget(vin) {
      recent.delete(vin)
      return rows('DELETE FROM fleethook_vehicles WHERE vin = ? RETURNING vin', vin).length > 0
    },

    async forgetUnseen(ms) {
      const gone = rows("DELETE FROM fleethook_vehicles WHERE vin <> '' AND seen_at < ? RETURNING vin", ms)
      for (const { vin } of gone) recent.delete(String(vin))
      return gone.length
    },

    async count() {
      const [total] = rows("SELECT count(*) AS vehicles FROM fleethook_vehicles WHERE vin <> ''")
      return { vehicles: Number(total?.['vehicles']), unwritten: 0 }
    },

    oldestSeenMs() {
      const [oldest] = rows("SELECT min(seen_at) AS seen FROM fleethook_vehicles WHERE vin <> ''")
      return typeof oldest?.['seen'] === 'number' ? oldest['seen'] : undefined
    },
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
