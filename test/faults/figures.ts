import { execFileSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { availableParallelism, cpus, release, totalmem } from 'node:os'
import { fileURLToPath } from 'node:url'
import { format, resolveConfig } from 'prettier'
import { type Runtime, runtimePath } from '../../scripts/runtimes.ts'
import { form } from '../form.ts'

/** One row of a table of figures. Every row of a table has the same columns, which are its heading. */
export type Row = Readonly<Record<string, string | number>>

export interface Figures {
  /** The file's name: `docs/figures/<piece>.md`. Only one test file writes each piece. */
  readonly piece: string
  readonly title: string
  /** The test file, as `npm run test:faults -- <file>` takes it. */
  readonly file: string
  /** What was done and what the columns mean, in plain words. */
  readonly about: string
  readonly tables: readonly { readonly title: string; readonly rows: readonly Row[] }[]
  /** Versions of other software that took part: Bun, Deno, a file system. Node and the kernel are always included. */
  readonly versions?: Readonly<Record<string, string>>
}

const root = fileURLToPath(new URL('../..', import.meta.url))

/**
 * Writes what a long run measured into `docs/figures/<piece>.md`, with the machine, the versions and the command, for
 * `docs/reliability.md` to quote. A short run measures too little to be quoted and writes nothing.
 */
export async function writeFigures(figures: Figures): Promise<void> {
  const text = [
    `# ${figures.title}`,
    figures.about,
    ...figures.tables.flatMap(({ title, rows }) => [`## ${title}`, table(rows)]),
    '## Where and how',
    table([
      { what: 'command', value: `\`npm run test:faults -- ${figures.file}\`` },
      { what: 'commit', value: commit() },
      { what: 'day', value: new Date().toISOString().slice(0, 10) },
      { what: 'machine', value: machine() },
      { what: 'Node', value: process.versions.node },
      ...Object.entries(figures.versions ?? {}).map(([what, value]) => ({ what, value })),
    ]),
  ].join('\n\n')
  if (form !== 'long') return
  const path = `${root}docs/figures/${figures.piece}.md`
  mkdirSync(`${root}docs/figures`, { recursive: true })
  writeFileSync(path, await format(text, { ...(await resolveConfig(path)), filepath: path }))
}

/** The versions of these runtimes, for {@link Figures.versions}. */
export function versionsOf(runtimes: readonly Runtime[]): Readonly<Record<string, string>> {
  const version = (runtime: Runtime): string => {
    const [line = ''] = execFileSync(runtimePath(runtime), ['--version'], { encoding: 'utf8' }).split('\n')
    return /\d+\.\d+\.\d+/.exec(line)?.[0] ?? line
  }
  return Object.fromEntries(runtimes.map((runtime) => [runtime, version(runtime)]))
}

function table(rows: readonly Row[]): string {
  const columns = Object.keys(rows[0] ?? {})
  const line = (cells: readonly (string | number)[]): string => `| ${cells.join(' | ')} |`
  return [
    line(columns),
    line(columns.map((column) => (rows.every((row) => typeof row[column] === 'number') ? '--:' : '---'))),
    ...rows.map((row) => line(columns.map((column) => row[column] ?? ''))),
  ].join('\n')
}

function machine(): string {
  const memory = Math.round(totalmem() / 2 ** 30)
  return `${availableParallelism()} cores (${cpus()[0]?.model.trim()}), ${memory} GiB, ${process.platform} ${release()}`
}

function commit(): string {
  try {
    const git = (...args: readonly string[]): string =>
      execFileSync('git', args, { cwd: root, encoding: 'utf8' }).trim()
    const changed = git('status', '--porcelain', '--', 'src', 'adapters') !== ''
    return `${git('rev-parse', '--short', 'HEAD')}${changed ? ', with changes that were not committed' : ''}`
  } catch {
    return 'unknown'
  }
}
