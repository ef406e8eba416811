import { existsSync, readFileSync } from 'node:fs'

/** One completed run of a handler. */
export interface JournalLine {
  readonly pid: number
  readonly vin: string
  readonly number: number
  readonly redelivered: boolean
  /** Milliseconds since the epoch, by a clock that does not jump. */
  readonly atMs: number
}

/** The complete lines of a journal. Skips a line that a dying process did not finish. */
export function readJournal(path: string): readonly JournalLine[] {
  if (!existsSync(path)) return []
  const lines = readFileSync(path, 'utf8').split('\n')
  return lines.slice(0, -1).flatMap((line) => {
    try {
      return [JSON.parse(line) as JournalLine]
    } catch {
      return []
    }
  })
}

/** Broken promises. */
export interface Verdict {
  /** Acknowledged and not handled. */
  readonly lost: readonly string[]
  /** Handled before one of the same vehicle that was sent earlier. */
  readonly outOfOrder: readonly string[]
  /** Handled more than once. */
  readonly duplicates: readonly JournalLine[]
  /** Handled again although a later message was settled. */
  readonly settledAgain: readonly string[]
}

const nameOf = ({ vin, number }: Pick<JournalLine, 'vin' | 'number'>): string => `${vin} ${number}`

/** Compares the acknowledgments, counted outside the process, with the journal. */
export function judge(acknowledged: ReadonlySet<string>, journal: readonly JournalLine[]): Verdict {
  const seen = new Set<string>()
  const duplicates: JournalLine[] = []
  const outOfOrder: string[] = []
  const settledAgain: string[] = []
  const byVin = Map.groupBy(journal, ({ vin }) => vin)
  for (const lines of byVin.values()) {
    let highest = -1
    // The vehicle's messages that one process handled, in its order.
    let previousRun: readonly number[] = []
    for (const run of runsOf(lines)) {
      const numbers = run.map(({ number }) => number)
      if (numbers.some((number, at) => at > 0 && number <= (numbers[at - 1] ?? -1))) outOfOrder.push(...run.map(nameOf))
      const again = run.filter((line) => seen.has(nameOf(line)))
      duplicates.push(...again)
      // They must be the last ones of the run before, because messages settle in order.
      const tail = previousRun.slice(previousRun.length - again.length)
      if (again.some(({ number }, at) => number !== tail[at])) settledAgain.push(...again.map(nameOf))
      for (const line of run) {
        if (!seen.has(nameOf(line)) && line.number < highest) outOfOrder.push(nameOf(line))
        highest = Math.max(highest, line.number)
        seen.add(nameOf(line))
      }
      previousRun = numbers
    }
  }
  return { lost: [...acknowledged].filter((name) => !seen.has(name)), outOfOrder, duplicates, settledAgain }
}

function runsOf(lines: readonly JournalLine[]): readonly (readonly JournalLine[])[] {
  const runs: JournalLine[][] = []
  for (const line of lines) {
    const run = runs.at(-1)
    if (run?.[0]?.pid === line.pid) run.push(line)
    else runs.push([line])
  }
  return runs
}
