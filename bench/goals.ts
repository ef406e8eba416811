/**
 * Measures every goal of `bench/README.md`, in three runs of all of them, and writes the table there. The figures are kept in
 * `bench/goals.json`, so that some goals can be measured again alone.
 *
 *     npm run bench -- goals
 *     npm run bench -- goals --only pipeline,batches --runs 3
 *     npm run bench -- goals --runs 1 --print
 */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { cpus, loadavg, release, tmpdir, type } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { canSlowSyncs, memoryFolder, slowSyncs } from './durable/slow-disk.ts'
import { writeBetween } from './marks.ts'
import { median } from './median.ts'
import { measuredCore, pinned } from './pin.ts'
import { table } from './table.ts'

const { values } = parseArgs({
  options: {
    runs: { type: 'string', default: '3' },
    only: { type: 'string', default: '' },
    print: { type: 'boolean', default: false },
    /** Writes the table of the page from `goals.json`, without measuring. */
    write: { type: 'boolean', default: false },
  },
})

/** A row of a table that a benchmark printed: cells by the title of their column. */
type Row = Readonly<Record<string, string>>

/** One measurement, and the goals whose figures it gives. */
interface Part {
  readonly name: string
  readonly script: string
  readonly args?: readonly string[]
  /** Whether the process is pinned to one core. Other parts pin their own processes. */
  readonly isPinned?: boolean
  /** On a file system in memory, each sync takes this long. */
  readonly syncMicroseconds?: number
  readonly goals: readonly Goal[]
}

interface Goal {
  readonly what: string
  readonly limits: readonly number[]
  readonly unit?: string
  /** Whether greater figures are better. */
  readonly isAtLeast?: boolean
  readonly digits?: number
  readonly figures: (rows: readonly Row[]) => readonly number[]
}

const cell = (rows: readonly Row[], column: string, which: Readonly<Record<string, string>>): number => {
  const row = rows.find((each) => each[column] !== undefined && Object.entries(which).every(([k, v]) => each[k] === v))
  const figure = Number.parseFloat(row?.[column] ?? '')
  if (Number.isNaN(figure)) throw new Error(`No ${column} where ${JSON.stringify(which)}.`)
  return figure
}

const parts: readonly Part[] = [
  {
    name: 'pipeline',
    script: 'pipeline.ts',
    args: ['--rounds', '7', '--count', '12000'],
    goals: [
      {
        what: 'pipeline on Node, CPU to a Hono handler that reads the body, `service`',
        limits: [1],
        figures: (rows) => {
          const [own, hono] = ['fleethook', 'Hono + c.req.json()'].map((server) => cell(rows, 'ratio', { server }))
          return [(own ?? 0) / (hono ?? 0)]
        },
      },
      {
        what: 'pipeline on Node, worst of three formats, CPU to bare `node:http` + `JSON.parse` (no goal)',
        limits: [],
        figures: (rows) => [
          Math.max(...rows.filter(({ server }) => server === 'fleethook').map(({ ratio }) => Number(ratio))),
        ],
      },
    ],
  },
  {
    name: 'runtimes',
    script: 'runtimes.ts',
    goals: [
      {
        what: 'on Bun / Deno / workerd, CPU to the bare server',
        limits: [1.35, 1.35, 1.5],
        figures: (rows) =>
          ['bun', 'deno', 'workerd'].map((runtime) => cell(rows, 'to bare', { runtime, server: 'fleethook' })),
      },
    ],
  },
  {
    name: 'batches',
    script: 'batches.ts',
    isPinned: true,
    goals: [
      {
        what: '100 messages in one collector body, as a list / one after another, CPU to `JSON.parse` of the list',
        limits: [5, 5],
        figures: (rows) =>
          ['fleethook, a list', 'fleethook, one after another'].map((what) => cell(rows, 'ratio', { what })),
      },
    ],
  },
  {
    name: 'start',
    script: 'start.ts',
    args: ['--starts', '11'],
    goals: [
      {
        what: 'start on Node, process to first 200, to bare `node:http`',
        limits: [1.35],
        figures: (rows) => [cell(rows, 'to bare', { 'what starts': 'fleethook on Node' })],
      },
    ],
  },
  {
    name: 'memory',
    script: 'waiting.ts',
    args: ['--vins', '100000'],
    goals: [
      {
        what: 'resident memory with 500,000 waiting messages of 100,000 vehicles, to idle',
        limits: [1.2],
        figures: (rows) => [cell(rows, 'ratio, budget 1.2', { receiver: '500000 waiting, 100000 VINs' })],
      },
    ],
  },
  {
    name: 'size',
    script: '../scripts/size.ts',
    goals: [
      {
        what: "a Worker's bundle, gzip, kB",
        limits: [48],
        digits: 1,
        figures: (rows) => [cell(rows, 'bytes', { what: 'gzipped' }) / 1000],
      },
    ],
  },
  {
    name: 'appends',
    script: 'durable/appends.ts',
    syncMicroseconds: 2_000,
    goals: [
      {
        what: 'appends to `sqliteInbox`, rate to a raw file with `fdatasync`, 2 ms per sync, 16 / 64 / 256 producers',
        limits: [0.9, 0.8, 0.6],
        isAtLeast: true,
        figures: (rows) =>
          ['16', '64', '256'].map((producers) => cell(rows, 'to raw', { store: 'sqliteInbox', producers })),
      },
    ],
  },
  {
    name: 'slow-syncs',
    script: 'durable/http.ts',
    args: ['--connections', '64', '--only', 'memory,sqlite,thread'],
    syncMicroseconds: 10_000,
    goals: [
      {
        what: 'acknowledgment p99 with 10 ms per sync, 64 connections, without / with a thread, ms',
        limits: [22, 22],
        digits: 1,
        figures: (rows) => ['sqliteInbox', 'sqliteInbox, thread'].map((server) => cell(rows, 'ack p99 ms', { server })),
      },
      {
        what: 'event loop delay p99 with 10 ms per sync, without / with a thread, ms',
        limits: [11, 11],
        digits: 1,
        figures: (rows) =>
          ['sqliteInbox', 'sqliteInbox, thread'].map((server) => cell(rows, 'loop delay p99 ms', { server })),
      },
    ],
  },
  {
    name: 'vehicles',
    script: 'vehicles.ts',
    goals: [
      {
        what: 'pipeline with `vehicles` of ten fields, CPU to without, in memory / SQLite',
        limits: [1.05, 1.1],
        digits: 3,
        figures: (rows) => ['pipeline, in memory', 'pipeline, SQLite'].map((inbox) => cell(rows, 'ratio', { inbox })),
      },
      {
        what: '100,000 vehicles with ten fields in memory, MB',
        limits: [100],
        digits: 1,
        figures: (rows) => [cell(rows, 'measured', { what: '100000 vehicles with ten fields in memory, MB' })],
      },
      {
        what: 'open a file with 100,000 vehicles, ms',
        limits: [500],
        digits: 0,
        figures: (rows) => [cell(rows, 'measured', { what: 'open a file with 100000 vehicles, ms' })],
      },
    ],
  },
  {
    name: 'observers',
    script: 'observe.ts',
    goals: [
      {
        what: 'CPU with OpenTelemetry spans, all sampled / 1 % sampled / metrics, to no observer (no goal)',
        limits: [],
        figures: (rows) =>
          ['spans, all sampled', 'spans, 1 % sampled', 'metrics'].map((what) => cell(rows, 'ratio', { what })),
      },
    ],
  },
]

/** The figures of one run. */
interface Run {
  readonly at: string
  readonly load: number
  readonly figures: readonly number[]
}

type Kept = Record<string, readonly Run[]>

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url))

/** The rows of all Markdown tables in a text, and of lines like `123  minified`. */
function rowsOf(text: string): Row[] {
  const rows: Row[] = []
  let head: readonly string[] = []
  for (const line of text.split('\n')) {
    const [, bytes, what] = /^ *(\d+) {2}([^;]+)/.exec(line) ?? []
    if (bytes !== undefined && what !== undefined) rows.push({ bytes, what })
    if (!line.startsWith('|')) head = []
    if (!line.startsWith('|') || line.startsWith('|-')) continue
    const cells = line
      .split('|')
      .slice(1, -1)
      .map((each) => each.trim())
    if (head.length === 0) head = cells
    else rows.push(Object.fromEntries(cells.map((each, at) => [head[at] ?? '', each])))
  }
  return rows
}

const scratch = mkdtempSync(join(tmpdir(), 'fleethook-bench-'))

function measure({ name, script, args = [], isPinned = false, syncMicroseconds }: Part): readonly Row[] | undefined {
  const isSlow = syncMicroseconds !== undefined
  if (isSlow && !canSlowSyncs(scratch)) {
    console.error(`NOT MEASURED, because there is no C compiler: ${name}`)
    return undefined
  }
  const plain = [process.execPath, here(script), ...args, ...(isSlow ? ['--folder', memoryFolder] : [])]
  const [command = process.execPath, ...rest] = isPinned ? pinned(measuredCore, plain) : plain
  const env = { ...process.env, ...(isSlow ? slowSyncs(scratch, syncMicroseconds) : {}) }
  const { stdout } = spawnSync(command, rest, { stdio: ['ignore', 'pipe', 'inherit'], env, encoding: 'utf8' })
  console.log(stdout)
  return rowsOf(stdout)
}

const file = here('goals.json')
const kept: Kept = JSON.parse(readFileSync(file, 'utf8'))
const chosen = parts.filter(({ name }) => values.only === '' || values.only.split(',').includes(name))
const measured: Record<string, Run[]> = {}
const started = performance.now()
for (let run = 0; run < (values.write ? 0 : Number(values.runs)); run += 1)
  for (const part of chosen) {
    const startedAt = performance.now()
    const load = loadavg()[0] ?? 0
    const at = new Date().toISOString().slice(0, 16)
    try {
      const rows = measure(part)
      if (rows === undefined) continue
      for (const { what, figures } of part.goals) (measured[what] ??= []).push({ at, load, figures: figures(rows) })
    } catch (error) {
      console.error(`NOT MEASURED: ${part.name}:`, error)
      process.exitCode = 1
    }
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(0)
    console.log(`── run ${run + 1}, ${part.name}: ${seconds} s, load of the machine before ${load.toFixed(2)}\n`)
  }
rmSync(scratch, { recursive: true })

const textOf = (figures: readonly number[], digits: number): string =>
  figures.map((figure) => figure.toFixed(digits)).join(' / ')

/** By how much the worst run misses each limit. A goal is met only if every run meets it. */
function verdict({ limits, isAtLeast = false, digits = 2 }: Goal, runs: readonly Run[]): string {
  if (limits.length === 0 || runs.length === 0) return ''
  const missed = limits.map((limit, at) => {
    const all = runs.map(({ figures }) => figures[at] ?? Number.NaN)
    return isAtLeast ? limit - Math.min(...all) : Math.max(...all) - limit
  })
  const rounded = missed.map((by) => Number(by.toFixed(digits)))
  if (rounded.every((by) => by <= 0)) return 'met'
  return `**missed** by ${rounded.map((by) => (by <= 0 ? 'met' : by.toFixed(digits))).join(' / ')}`
}

const everyRun: Kept = { ...kept, ...measured }
const goals = parts.flatMap((part) => part.goals)
const most = Math.max(1, ...goals.map(({ what }) => everyRun[what]?.length ?? 0))
const figures = table(
  ['what', 'goal', ...Array.from({ length: most }, (_, run) => `run ${run + 1}`), 'worst run'],
  goals.map((goal) => {
    const runs = everyRun[goal.what] ?? []
    return [
      goal.what,
      goal.limits.join(' / '),
      ...Array.from({ length: most }, (_, run) => textOf(runs[run]?.figures ?? [], goal.digits ?? 2)),
      verdict(goal, runs),
    ]
  }),
)
const all = goals.flatMap(({ what }) => everyRun[what] ?? [])
const times = all.map(({ at }) => at).toSorted()
const machine = [
  `Measured from ${times[0]} to ${times.at(-1)} UTC, Node ${process.versions.node}, ${type()} ${release().split('-')[0]}, ${cpus().length} × ${cpus()[0]?.model.trim()}.`,
  `The load of the machine before each measurement was ${median(all.map(({ load }) => load)).toFixed(1)} (median), ${Math.max(...all.map(({ load }) => load)).toFixed(1)} at most, earlier measurements included.`,
].join('\n')
console.log(`${machine}\n\n${figures}\n\n${((performance.now() - started) / 1000).toFixed(0)} seconds`)
if (!values.print) {
  writeFileSync(file, `${JSON.stringify(everyRun, undefined, 2)}\n`)
  writeBetween(here('README.md'), 'goals', `${machine}\n\n${figures}`)
}
