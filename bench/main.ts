// `npm run bench` compares fleethook with other servers. `npm run bench -- <name>` runs another benchmark, with its own flags behind
// the name. `npm run bench -- --help` lists them.
import { spawnSync } from 'node:child_process'

interface Benchmark {
  readonly says: string
  /** Commands that must run before it. */
  readonly first?: readonly string[]
  /** Files that it writes, to be formatted. */
  readonly writes?: readonly string[]
}

const build = 'npm run --silent build'

const benchmarks: Readonly<Record<string, Benchmark>> = {
  page: {
    says: 'other servers beside fleethook, two minutes; writes the table and the chart of bench/README.md',
    first: [build],
    writes: ['bench/README.md'],
  },
  goals: {
    says: 'every goal of bench/README.md, three times; writes its table',
    first: [build],
    writes: ['bench/README.md', 'bench/goals.json'],
  },
  all: { says: 'pipeline, vins, batches and memory, three minutes', first: [build] },
  pipeline: { says: 'CPU from the socket to the handler, three formats', first: [build] },
  batches: { says: 'a hundred messages in one body', first: [build] },
  vins: { says: 'one vehicle or a hundred thousand', first: [build] },
  memory: { says: 'memory of messages that wait', first: [build] },
  normalize: { says: 'reading messages into events' },
  vehicles: { says: 'CPU and memory of the newest state of vehicles', first: [build] },
  facts: { says: 'a table of facts of 100,000 vehicles, and a rule that begins for all of them, six minutes' },
  observe: { says: 'CPU of observers' },
  start: { says: 'from the start of a process to its first 200', first: [build] },
  runtimes: {
    says: 'Node, Bun, Deno and workerd beside an empty Hono handler and their bare servers',
    first: [build, 'node scripts/runtimes.ts'],
  },
  cores: { says: 'more than one core', first: [build] },
  durable: { says: 'each message on disk, ten minutes', first: [build] },
  'durable/recovery': { says: 'a start with many waiting messages' },
  waiting: { says: 'memory of messages that wait in a file' },
  kafka: { says: 'three real brokers and a peer', first: ['node scripts/kafka.ts'] },
  postgres: {
    says: 'the inbox in Postgres beside an INSERT for each request, pg-boss and graphile-worker',
    first: [build, 'node scripts/install.ts bench'],
  },
  capacity: {
    says: 'what a message costs each store, against the sums of bench/README.md',
    first: ['node scripts/kafka.ts'],
  },
  branches: { says: 'what a branch that forwards costs its receiver, and whether everything arrives' },
  path: { says: 'the functions and files that one message runs through' },
  profile: { says: 'where the CPU goes', first: [build] },
}

const [given, ...args] = process.argv.slice(2)
const isNamed = given !== undefined && !given.startsWith('-')
const name = isNamed ? given : 'page'
const benchmark = benchmarks[name]

function run(command: string): void {
  const { status } = spawnSync(command, { shell: true, stdio: 'inherit' })
  if (status !== 0) process.exit(status ?? 1)
}

if (given === '--help' || benchmark === undefined) {
  if (given !== '--help') console.error(`There is no benchmark "${name}".\n`)
  console.log('npm run bench -- <name> [flags]\n')
  for (const [each, { says }] of Object.entries(benchmarks)) console.log(`  ${each.padEnd(18)}${says}`)
  process.exitCode = given === '--help' ? 0 : 1
} else {
  for (const command of benchmark.first ?? []) run(command)
  const { status } = spawnSync(process.execPath, [`bench/${name}.ts`, ...(isNamed ? args : process.argv.slice(2))], {
    stdio: 'inherit',
  })
  if (status !== 0) process.exitCode = status ?? 1
  else if (benchmark.writes !== undefined) run(`prettier --write --log-level warn ${benchmark.writes.join(' ')}`)
}
