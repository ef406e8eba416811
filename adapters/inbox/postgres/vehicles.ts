import { elapsedMs, pause } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import {
  type Due,
  dueColumn,
  type SharedGaps,
  type SharedPause,
  type SharedVehicles,
  type StoredVehicle,
  type VehicleFollower,
  type VehicleStore,
} from '../../../src/inbox/vehicle-store.ts'
import { RecentVehicles } from '../../../src/vehicles/recent.ts'
import { pageBytes } from '../../../src/base/pages.ts'
import { laneOf } from '../../../src/inbox/receipts.ts'
import { briefly, type Database, type Row } from './client.ts'
import { partitionOf, storable } from './schema.ts'
import type { Tables } from './tables.ts'

/** The room for states in memory. */
const cacheBytes = 128 * 1_048_576

/**
 * How long an erasure waits for the process that has the vehicle, in milliseconds. It looks for messages at least every minute, with the longest `idleMs`.
 */
const toldWithinMs = 90_000

/**
 * The states of vehicles. A state is written with the end of its message, and in memory only while this process has the partition of the
 * vehicle. Any process may read the rows.
 */
export class VehicleRows implements VehicleStore, SharedVehicles {
  readonly shared: SharedVehicles = this
  /** Writes the states that came so far. */
  flush: () => Promise<void> = async () => {}
  /** Called when a vehicle could not be forgotten. */
  failed: (error: unknown) => void = () => {}
  /** The rows of the branches in this process, for the receiver: one notice erases a vehicle in all of them. */
  others: () => readonly VehicleRows[] = () => []
  readonly #db: Database
  readonly #tables: Tables
  /** The partitions of this process. The rest is about vehicles in them. */
  readonly #parts = new Set<number>()
  readonly #recent = new RecentVehicles(cacheBytes)
  /** Their messages are settled, and Postgres does not know it yet. */
  readonly #unwritten = new Map<string, StoredVehicle>()
  #losses = 0
  /** Partitions that came or went, and that the host does not know of yet. */
  #moved = new Set<number>()
  #host: VehicleFollower | undefined
  readonly #notices = new Set<number>()
  #gaps = noGaps
  /** The newest notice that was read. */
  #newest = -1

  constructor(db: Database, tables: Tables) {
    this.#db = db
    this.#tables = tables
  }

  gained(parts: readonly number[]): void {
    for (const part of parts) {
      this.#parts.add(part)
      this.#moved.add(part)
    }
  }

  lost(parts: readonly number[]): void {
    this.#losses += 1
    for (const part of parts) {
      this.#parts.delete(part)
      this.#moved.add(part)
    }
    for (const known of [this.#recent, this.#unwritten])
      for (const { vin } of known.values()) if (!this.#has(vin)) known.delete(vin)
  }

  /** A message that leads to this state is settled. */
  settled(vehicle: StoredVehicle): void {
    this.keep(vehicle)
    if (this.#has(vehicle.vin)) this.#unwritten.set(vehicle.vin, vehicle)
  }

  written(vehicles: readonly StoredVehicle[]): void {
    for (const vehicle of vehicles)
      if (this.#unwritten.get(vehicle.vin) === vehicle) this.#unwritten.delete(vehicle.vin)
  }

  /** The timers of the partitions that came and went are read. */
  async followMoves(): Promise<void> {
    const moved = this.#moved
    if (moved.size === 0 || this.#host === undefined) return
    this.#moved = new Set()
    try {
      await this.#host.moved((vin) => moved.has(partOf(vin)))
    } catch (error) {
      for (const part of moved) this.#moved.add(part)
      throw error
    }
  }

  /** Notices after this one are read. One with a lower id than the newest may be committed later. */
  get noticesAfter(): number {
    return this.#newest - 100
  }

  /** Rows of `notice`, as JSON: the gaps of all vehicles, and vehicles to forget. */
  noticed(json: unknown): void {
    if (this.#newest < 0) this.#newest = 0
    const found: unknown = JSON.parse(String(json ?? '[]'))
    for (const each of Array.isArray(found) ? found : []) {
      const [id, vin, seq, kind] = Array.isArray(each)
        ? [Number(each[0]), String(each[1]), Number(each[2]), each[3]]
        : [-1, '', -1, null]
      if (this.#notices.has(id)) continue
      this.#notices.add(id)
      this.#newest = Math.max(this.#newest, id)
      if (vin === '') this.#addGap(seq, kind)
      else if (this.#has(vin))
        void this.#forgetFor(id, vin).catch((error: unknown) => {
          this.#notices.delete(id)
          this.failed(error)
        })
    }
    for (const id of this.#notices) if (id <= this.noticesAfter) this.#notices.delete(id)
  }

  #addGap(seq: number, kind: unknown): void {
    const { ends, pauses } = this.#gaps
    const fromMs = pausedFrom(kind)
    this.#gaps =
      fromMs === undefined
        ? { ends: [...ends, seq].toSorted((one, other) => one - other), pauses }
        : { ends, pauses: [...pauses, { to: seq, fromMs }].toSorted((one, other) => one.to - other.to) }
  }

  /** Another process erases a vehicle, and waits until its notice is gone. */
  async #forgetFor(notice: number, vin: string): Promise<void> {
    for (const rows of [this, ...this.others()]) await rows.forgetHere(vin)
    await this.#db.run(`DELETE FROM ${this.#db.schema}.notice WHERE id = $1`, [notice])
  }

  /** Also what the receiver or the branch has in memory. */
  async forgetHere(vin: string): Promise<void> {
    await (this.#host ?? this).forget(vin)
  }

  follow(host: VehicleFollower): void {
    this.#host = host
    // The first timers are read anyway.
    this.#moved = new Set()
  }

  gapsTo(seq: number): SharedGaps {
    const { ends, pauses } = this.#gaps
    return {
      to: ends.findLast((end) => end <= seq) ?? -1,
      pauses: (pauses.at(-1)?.to ?? -1) <= seq ? pauses : pauses.filter(({ to }) => to <= seq),
    }
  }

  async *due(): AsyncGenerator<readonly Due[]> {
    const parts = [...this.#parts]
    // At a start, when Postgres may be away.
    if (parts.length === 0) return
    try {
      await this.flush()
      const rows = await this.#db.run(
        `SELECT vin, due FROM ${this.#tables.vehicle} WHERE part = ANY ($1::smallint[]) AND due IS NOT NULL`,
        [parts],
      )
      yield rows.map(({ vin, due }) => ({ vin: String(vin), dueMs: Number(due) }))
    } catch (error) {
      // Read again with the next move.
      for (const part of parts) this.#moved.add(part)
      throw error
    }
  }

  async *outdated(rules: string): AsyncGenerator<readonly StoredVehicle[]> {
    const parts = [...this.#parts]
    if (parts.length === 0) return
    await this.flush()
    for (let after = ''; ;) {
      const page = await this.#select(
        // Code of version 3 writes the rules into the text only, and leaves the column as it was.
        `v.part = ANY ($1::smallint[]) AND v.vin > $2 AND (v.rules IS DISTINCT FROM $3::text OR strpos(left(v.text, 40 + length($4::text)), $4::text) = 0)
ORDER BY v.vin LIMIT 500`,
        [parts, after, rules, rulesText(rules)],
      )
      const last = page.at(-1)?.vin
      if (last === undefined) return
      after = last
      // States in memory know the rules, or learn of them with their next message.
      yield page.filter(({ vin }) => this.#here(vin)?.rules !== rules)
    }
  }

  load(vin: string): StoredVehicle | undefined | Promise<StoredVehicle | undefined> {
    // Gaps of all vehicles are notices.
    if (vin === '') return undefined
    return this.#here(vin) ?? this.#read(vin)
  }

  async #read(vin: string): Promise<StoredVehicle | undefined> {
    const losses = this.#losses
    const [stored] = await this.#select('v.vin = $1', [storable(vin)])
    const newer = this.#here(vin)
    // A partition that went and came back may have a newer state.
    const isNewest = losses === this.#losses && this.#has(vin)
    if (newer === undefined && stored !== undefined && isNewest) this.#recent.set(stored)
    return newer ?? stored
  }

  async #select(where: string, values: readonly unknown[]): Promise<readonly StoredVehicle[]> {
    const { vehicle, notice } = this.#tables
    // A process that only receives learns of gaps here.
    const gaps =
      this.#newest < 0
        ? `(SELECT json_agg(json_build_array(g.seq, g.kind))::text FROM (SELECT DISTINCT ON (n.kind IS NULL) n.seq, n.kind
  FROM ${notice} n WHERE n.vin = '' ORDER BY n.kind IS NULL, n.seq DESC) g)`
        : 'NULL'
    const rows = await this.#db.run(`SELECT v.*, ${gaps} AS gaps FROM ${vehicle} v WHERE ${where}`, values)
    if (this.#newest < 0) {
      const newest: readonly (readonly [number, unknown])[] = JSON.parse(String(rows[0]?.['gaps'] ?? '[]'))
      this.#gaps = noGaps
      for (const [seq, kind] of newest) this.#addGap(seq, kind)
    }
    return rows.map(storedOf)
  }

  keep(vehicle: StoredVehicle): void {
    // An older state that is on its way must not hide this one.
    this.#unwritten.delete(vehicle.vin)
    if (this.#has(vehicle.vin)) this.#recent.set(vehicle)
  }

  async list({ after = '', limit }: Parameters<VehicleStore['list']>[0]): Promise<readonly StoredVehicle[]> {
    await this.flush()
    return this.#select(
      `v.vin IN (SELECT vin FROM (SELECT vin, sum(octet_length(text)) OVER (ORDER BY vin ROWS UNBOUNDED PRECEDING) - octet_length(text) AS before
  FROM (SELECT vin, text FROM ${this.#tables.vehicle} WHERE vin > $1 ORDER BY vin LIMIT $2) listed) page WHERE before < ${pageBytes}) ORDER BY v.vin`,
      [storable(after), limit],
    )
  }

  async forget(vin: string): Promise<boolean> {
    await this.flush()
    this.#recent.delete(vin)
    const rows = await this.#db.run(
      `WITH l AS (SELECT FROM ${briefly}) DELETE FROM ${this.#tables.vehicle} USING l WHERE vin = $1 RETURNING seq`,
      [storable(vin)],
    )
    if (!this.#has(vin)) await this.#tellOwner(storable(vin), partOf(vin))
    return rows.length > 0
  }

  /** Resolves when the process that has the vehicle has deleted what it had of it, in memory too. No notice is left, whatever happens. */
  async #tellOwner(vin: string, part: number): Promise<void> {
    const { clock, schema } = this.#db
    const untilMs = elapsedMs(clock) + toldWithinMs
    try {
      for (let told: string | undefined; ;) {
        const owner = await this.#notify(vin, part, told)
        if (owner === undefined) return
        if (elapsedMs(clock) >= untilMs)
          throw new FleethookError('inbox_unavailable', 'The process that handles this vehicle did not erase it.', {
            hint: 'Try again when all processes run the same fleethook, and none of them hangs.',
          })
        told = owner
        await pause(clock, 50)
      }
    } finally {
      await this.#db.run(`DELETE FROM ${schema}.notice WHERE vin = $1`, [vin])
    }
  }

  /** Leaves a notice for the owner of the partition, unless that one was `told`. Resolves to the owner; `undefined`: there is none, or it has done it. */
  async #notify(vin: string, part: number, told: string | undefined): Promise<string | undefined> {
    const { schema } = this.#db
    const [row] = await this.#db.run(
      `WITH o AS (SELECT p.owner FROM ${schema}.part p JOIN ${schema}.process r ON r.id = p.owner
  WHERE p.part = $2 AND r.until > clock_timestamp()),
other AS (SELECT FROM o WHERE $3::uuid IS NULL OR o.owner <> $3::uuid),
gone AS (DELETE FROM ${schema}.notice n USING other WHERE n.vin = $1),
noticed AS (INSERT INTO ${schema}.notice (vin) SELECT $1::text FROM other)
SELECT o.owner::text AS owner, (EXISTS (SELECT FROM other) OR EXISTS (SELECT FROM ${schema}.notice WHERE vin = $1))::text AS waits FROM o`,
      [vin, part, told ?? null],
    )
    return row?.['waits'] === 'true' ? String(row['owner']) : undefined
  }

  async forgetUnseen(ms: number): Promise<number> {
    const rows = await this.#db.run(
      `WITH free AS (SELECT vin FROM ${this.#tables.vehicle} WHERE coalesce(seen_at, 0) < $1 FOR UPDATE SKIP LOCKED)
DELETE FROM ${this.#tables.vehicle} v USING free WHERE v.vin = free.vin RETURNING v.vin`,
      [Math.floor(ms)],
    )
    for (const { vin, seenMs } of this.#recent.values()) if (seenMs < ms) this.#recent.delete(vin)
    return rows.length
  }

  async count(): Promise<{ readonly vehicles: number; readonly unwritten: number }> {
    const unwritten = this.#unwritten.size
    const [row] = await this.#db.run(`SELECT count(*) AS vehicles FROM ${this.#tables.vehicle}`)
    return { vehicles: Number(row?.['vehicles']), unwritten }
  }

  #has(vin: string): boolean {
    return this.#parts.has(partOf(vin))
  }

  #here(vin: string): StoredVehicle | undefined {
    return this.#unwritten.get(vin) ?? this.#recent.get(vin)
  }
}

/** The gaps of all vehicles, in order: the `seq` of each gap that is no pause, and the pauses. */
interface Gaps {
  readonly ends: readonly number[]
  readonly pauses: readonly SharedPause[]
}

const noGaps: Gaps = { ends: [], pauses: [] }

/** The `kind` of a pause in the table `notice`, with its beginning. Other gaps have no kind. */
export const pauseKind = (fromMs: number): string => `pause ${fromMs}`

function pausedFrom(kind: unknown): number | undefined {
  const fromMs = /^pause (\d+)$/.exec(String(kind))?.[1]
  return fromMs === undefined ? undefined : Number(fromMs)
}

/** How the text of a state has its rules, within its first 40 characters: for code of version 3. */
const rulesText = (rules: string): string => `"rules":${JSON.stringify(rules)}`

const partOf = (vin: string): number => partitionOf(storable(laneOf(vin)))

function storedOf(row: Row): StoredVehicle {
  const text = String(row['text'])
  const { vin, seq, seen_at: seenAt, due, rules } = row
  return {
    vin: String(vin),
    seq: Number(seq),
    seenMs: seenAt === null ? -Infinity : Number(seenAt),
    dueMs: due == null ? undefined : Number(due),
    rules: typeof rules === 'string' ? rules : undefined,
    bytes: text.length,
    text: () => text,
  }
}

/** The most characters of a VIN with a state: an index has no room for longer ones. */
const longestVin = 500

/** A state of a vehicle, and the `seq` of the row of `waiting` whose message led to it. A late message leads to a state that includes newer messages. */
export type EndState = readonly [endedBy: string, vehicle: StoredVehicle]

/** The parameters of {@link endSql}. */
export function stateValues(states: readonly EndState[]): readonly (readonly unknown[])[] {
  const rows = states.flatMap(([endedBy, vehicle]) => {
    const { vin, seq, seenMs, rules } = vehicle
    try {
      if (vin === '' || vin.length > longestVin) return []
      const seenAt = Number.isFinite(seenMs) ? Math.floor(seenMs) : null
      const text = storable(vehicle.text())
      return [[storable(vin), partOf(vin), seq, seenAt, dueColumn(vehicle), text, endedBy, rules ?? null]]
    } catch {
      // What an edge of your own remembers is not JSON. The older state stays.
      return []
    }
  })
  return [0, 1, 2, 3, 4, 5, 6, 7].map((column) => rows.map((row) => row[column]))
}

/**
 * Ends messages: `gone` are the rows of `waiting` that it deletes, out of the rows in `g(part, seq, vin)`. It writes the states of their vehicles, from the
 * parameters after `first`: for each vehicle the state after its last message here. If that message cannot end now, no message of its vehicle does,
 * because no state would have them. It waits for no lock while it has others: what somebody else has locked, a message, its partition or its vehicle, is
 * not in `gone`, and comes later. No other process gets a partition before the statement ends, so it finds all that this one wrote, and a
 * process that was frozen for longer than its lease writes nothing.
 */
export const endSql = ({ schema, waiting, vehicle }: Tables, me: string, first: number): string =>
  `n AS (SELECT * FROM unnest($${first}::text[], $${first + 1}::smallint[], $${first + 2}::bigint[], $${first + 3}::bigint[], $${first + 4}::bigint[],
  $${first + 5}::text[], $${first + 6}::bigint[], $${first + 7}::text[]) n(vin, part, seq, seen_at, due, text, ended_by, rules)),
cars AS (SELECT v.vin FROM ${vehicle} v JOIN n ON n.vin = v.vin FOR NO KEY UPDATE OF v SKIP LOCKED),
busy AS (SELECT v.vin FROM ${vehicle} v JOIN n ON n.vin = v.vin WHERE NOT EXISTS (SELECT FROM cars c WHERE c.vin = v.vin)),
held AS (SELECT p.part FROM ${briefly} CROSS JOIN ${schema}.part p
  WHERE p.part = ANY ($1::smallint[]) AND p.owner = ${me} FOR SHARE OF p SKIP LOCKED),
free AS (SELECT w.part, w.seq FROM g JOIN held ON held.part = g.part JOIN ${waiting} w ON w.part = g.part AND w.seq = g.seq
  WHERE NOT EXISTS (SELECT FROM busy b WHERE b.vin = g.vin) FOR UPDATE OF w SKIP LOCKED),
behind AS (SELECT n.vin FROM (SELECT g.part, g.seq FROM n JOIN g ON g.part = n.part AND g.seq = n.ended_by EXCEPT SELECT part, seq FROM free) l
  JOIN n ON n.part = l.part AND n.ended_by = l.seq),
ends AS (SELECT f.part, f.seq FROM free f JOIN g ON g.part = f.part AND g.seq = f.seq WHERE NOT EXISTS (SELECT FROM behind b WHERE b.vin = g.vin)),
gone AS (DELETE FROM ${waiting} w USING ends e WHERE w.part = e.part AND w.seq = e.seq RETURNING w.*),
states AS (${upsertSql(vehicle)})`

/**
 * The rows of `g` that {@link endSql} left, because somebody has locked them or the last one of their vehicle. EXCEPT compares sets: without statistics, Postgres would compare each row of the one with each of
 * the other.
 */
export const lockedSql = ({ schema, waiting }: Tables, me: string): string =>
  `SELECT l.seq::text AS seq FROM (SELECT part, seq FROM g EXCEPT SELECT part, seq FROM ends) l
  JOIN ${waiting} w ON w.part = l.part AND w.seq = l.seq JOIN ${schema}.part p ON p.part = l.part AND p.owner = ${me}`

/** Writes states whose messages are in `gone`, the rows that the same statement deleted. */
const upsertSql = (vehicle: string): string =>
  `INSERT INTO ${vehicle} AS v (vin, part, seq, seen_at, due, text, rules) SELECT n.vin, n.part, n.seq, n.seen_at, n.due, n.text, n.rules
  FROM n JOIN gone ON gone.seq = n.ended_by
ON CONFLICT (vin) DO UPDATE SET seq = excluded.seq, seen_at = excluded.seen_at, due = excluded.due, text = excluded.text,
  rules = excluded.rules
WHERE v.seq < excluded.seq`
