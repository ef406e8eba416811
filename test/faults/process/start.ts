import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect } from 'vitest'
import { spawnTarget, type Target } from '../../conformance/spawn.ts'
import { programCommand, type ServerRuntime } from '../../runtimes/targets.ts'
import { type Journal, journalOf, readJournal } from './journal.ts'
import type { Settings } from './program.ts'
import { newFolder } from '../../folder.ts'

/** The inbox's file and the journal of one receiver and its successors. */
export interface Site {
  readonly path: string
  /** `changed`: settings of only this process. */
  start(changed?: Partial<Settings>, env?: Readonly<Record<string, string>>): Promise<Target>
  /** What the handlers of the receiver have done, or of a branch. */
  journal(branch?: string): Journal
  /** The dead letters, for a time without a process. Kills can come faster than handlers end, and three of them make a message suspect. */
  dead(): ReadonlySet<string>
}

/** `folder` is for the inbox's file. The journal is always elsewhere. */
export function createSite(
  runtime: ServerRuntime,
  settings: Omit<Settings, 'path' | 'journal'>,
  folder: string = newFolder('faults'),
): Site {
  const path = join(folder, 'inbox.db')
  const journal = join(newFolder('faults'), 'journal')
  return {
    path,
    start(changed = {}, env = {}) {
      const all: Settings = { ...settings, ...changed, path, journal }
      const program = join(import.meta.dirname, 'program.ts')
      return spawnTarget(programCommand(runtime, program, { SETTINGS: JSON.stringify(all), ...env }))
    },
    journal: (branch) => readJournal(branch === undefined ? journal : journalOf(journal, branch)),
    dead() {
      using db = new DatabaseSync(path, { readOnly: true })
      const sql =
        "SELECT text ->> 'vin' AS vin, text ->> '$.data.Odometer' AS number FROM dead JOIN messages USING (place)"
      const rows = db.prepare(sql).all()
      return new Set(rows.map(({ vin, number }) => `${String(vin)} ${String(number)}`))
    },
  }
}

/** The numbers in the last printed line that matches. */
export function lastLine({ output }: Target, pattern: RegExp): readonly number[] {
  const found = output.findLast((line) => pattern.test(line))
  return [...(found?.matchAll(/\d+/g) ?? [])].map(([number]) => Number(number))
}

/** The live memory of a receiver on Node, in bytes. */
export async function weigh({ output, kill }: Target): Promise<number> {
  const from = output.length
  kill('SIGUSR2')
  const found = (): string | undefined => output.slice(from).find((line) => line.startsWith('weight '))
  await expect.poll(found, { interval: 20 }).toBeDefined()
  return Number(found()?.slice('weight '.length))
}

/** Resolves when the receiver prints that nothing is pending and every gap was emitted. Only one that hangs takes longer than `timeout`. */
export async function idle({ output }: Target, timeout = 120_000): Promise<void> {
  // A line that was printed before the last acknowledgment may still be on its way. The next turn of the event loop reads it.
  for (let turn = 0; turn < 2; turn++) await new Promise((resolve) => setImmediate(resolve))
  const from = output.length
  await expect
    .poll(() => output.slice(from).some((line) => /^pending 0 .* gaps 0$/.test(line)), { timeout, interval: 50 })
    .toBe(true)
}
