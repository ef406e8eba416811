/** A field whose values did not read as the type the catalogue gives them. */
export interface Drift {
  readonly field: string
  /** The wrapper, or the JSON type, in which the values came. */
  readonly seen: string
  readonly count: number
}

/** What the wire carries that the catalogue does not expect, counted. */
export interface DriftReport {
  note(field: string, seen: string): void
  /** Most frequent first. */
  list(): readonly Drift[]
}

/** Whoever sends cannot make the report grow without end: beyond this many rows only known ones are counted. */
const maxRows = 1000

export function createDriftReport(): DriftReport {
  const rows = new Map<string, { readonly field: string; readonly seen: string; count: number }>()
  return {
    note(field, seen) {
      const key = `${seen} ${field}`
      const row = rows.get(key)
      if (row !== undefined) row.count += 1
      else if (rows.size < maxRows) rows.set(key, { field, seen, count: 1 })
    },
    list: () => [...rows.values()].toSorted((a, b) => b.count - a.count).map((row) => ({ ...row })),
  }
}
