/**
 * Why a value counts as drift. `undecoded`: it did not read as the type in the catalogue, and is in `event.undecoded`. The part `vehicles` did not
 * believe the others: `impossible` can never be true, and `unconfirmed` could not follow the value before it, and the next value did not confirm it.
 */
export type DriftReason = 'undecoded' | 'impossible' | 'unconfirmed'

/** A field with values that are not what the catalogue says. */
export interface Drift {
  /** The name of the field, cut at 100 characters. */
  readonly field: string
  readonly reason: DriftReason
  /** The wrapper, cut at 100 characters, or the JSON type of the values. */
  readonly seen: string
  /** The number of such values. */
  readonly count: number
}

export interface DriftReport {
  note(field: string, seen: string, reason: DriftReason): void
  /** All such values so far, including fields that found no row left. */
  total(): number
  /** The number of values that were not believed. */
  unbelieved(): number
  /** Most frequent first. */
  list(): readonly Drift[]
}

/** The most rows of the report: beyond them no field or type is added, so a sender cannot make it grow without end. */
const maxDriftRows = 1000

/** A longer name is cut: names come over the wire. */
const maxNameLength = 100

/** A copy, because a slice keeps the whole name in memory. */
function bounded(name: string): string {
  return name.length <= maxNameLength ? name : String(JSON.parse(JSON.stringify(name.slice(0, maxNameLength))))
}

export function createDriftReport(): DriftReport {
  const rows = new Map<string, { -readonly [Name in keyof Drift]: Drift[Name] }>()
  let total = 0
  let unbelieved = 0
  return {
    note(field, seen, reason) {
      total += 1
      if (reason !== 'undecoded') unbelieved += 1
      const [shortField, shortSeen] = [bounded(field), bounded(seen)]
      const key = `${reason} ${shortSeen} ${shortField}`
      const row = rows.get(key)
      if (row !== undefined) row.count += 1
      else if (rows.size < maxDriftRows) rows.set(key, { field: shortField, reason, seen: shortSeen, count: 1 })
    },
    total: () => total,
    unbelieved: () => unbelieved,
    list: () => [...rows.values()].toSorted((a, b) => b.count - a.count).map((row) => ({ ...row })),
  }
}
