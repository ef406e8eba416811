import { existsSync, readFileSync } from 'node:fs'
import type { GapReason } from '../../../src/index.ts'

/** One completed run of a handler. */
export interface RunLine {
  readonly kind: 'run'
  readonly pid: number
  readonly vin: string
  readonly number: number
  readonly delivery: string
  readonly attempt: number
  readonly redelivered: boolean
  readonly replayed: boolean
  /** Milliseconds since the epoch, by a clock that does not jump: of its start, and of its end. */
  readonly startedAtMs: number
  readonly atMs: number
}

/** A gap event that a handler got. The times are by the receiver's clock. */
export interface GapLine {
  readonly kind: 'gap'
  readonly pid: number
  readonly vin?: string
  readonly reason: GapReason
  readonly fromMs: number
  readonly toMs: number
  readonly missed: number
}

/** A dead letter that the last process of a site found in its inbox. */
export interface DeadLine {
  readonly kind: 'dead'
  readonly vin: string
  readonly number: number
  readonly delivery: string
  readonly error: string
}

/** A change of a vehicle's `Odometer`, as an edge reported it. */
export interface EdgeLine {
  readonly kind: 'edge'
  readonly pid: number
  readonly vin: string
  readonly from: number
  readonly to: number
  readonly id: string
}

export type JournalLine = RunLine | GapLine | DeadLine | EdgeLine

/** What handlers and dead letters say, over all processes of a site. */
export interface Journal {
  readonly runs: readonly RunLine[]
  readonly gaps: readonly GapLine[]
  readonly dead: readonly DeadLine[]
  readonly edges: readonly EdgeLine[]
}

/** The file of what a branch has done, beside the file of its receiver's journal. */
export const journalOf = (receiver: string, branch: string): string => `${receiver}-${branch}`

/** The complete lines of a journal. Skips a line that a dying process did not finish. */
export function readJournal(path: string): Journal {
  const lines = existsSync(path) ? readFileSync(path, 'utf8').split('\n').slice(0, -1).flatMap(readLine) : []
  return {
    runs: lines.filter((line) => line.kind === 'run'),
    gaps: lines.filter((line) => line.kind === 'gap'),
    dead: lines.filter((line) => line.kind === 'dead'),
    edges: lines.filter((line) => line.kind === 'edge'),
  }
}

function readLine(text: string): readonly JournalLine[] {
  try {
    return [JSON.parse(text) as JournalLine]
  } catch {
    return []
  }
}

/** Rows that handlers have written, as their runs, in the order of the rows. */
export function runsOf(rows: readonly Readonly<Record<string, unknown>>[]): readonly RunLine[] {
  const once = { kind: 'run', delivery: '', attempt: 1, redelivered: false, replayed: false } as const
  return rows.map(({ vin, number }, at) => ({
    ...once,
    ...{ vin: String(vin), number: Number(number), pid: at, startedAtMs: at, atMs: at },
  }))
}
