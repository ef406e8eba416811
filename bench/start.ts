/**
 * Measures the time from the start of a process to its first acknowledged message, with the installed package. It takes turns with
 * the least that can answer: `node:http`, the bare server of workerd, and a function that only parses. Linux only.
 *
 *     npm run bench -- start
 */
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { build } from 'esbuild'
import { runtimePath } from '../scripts/runtimes.ts'
import { spawnTarget, type TargetCommand } from '../test/conformance/spawn.ts'
import { workerCommand } from '../test/runtimes/targets.ts'
import { corpus } from './corpus.ts'
import { load, requestOf } from './load.ts'
import { median } from './median.ts'
import { loadCore, measuredCore, pinned, pinThis } from './pin.ts'
import { answerBody, secret } from './servers/answer.ts'
import { table } from './table.ts'

const { values } = parseArgs({ options: { starts: { type: 'string', default: '21' } } })
const starts = Number(values.starts)
const root = fileURLToPath(new URL('..', import.meta.url))
const folder = `${root}.runtimes/start-${process.pid}/`
const message = corpus({ messages: 1, vins: 1, format: 'service' })[0] ?? ''
const request = requestOf(message, secret)

const receiver = (options: string = ''): string =>
  `createReceiver({ secret: '${secret}', ${options} }).on('data', ({ data }) => { highest = data.VehicleSpeed ?? 0 })`
const onNode = (inbox: string): string => `
  import { createReceiver } from '../../dist/src/index.js'
  import { serve } from '../../dist/adapters/node.js'
  ${inbox === '' ? '' : "import { sqliteInbox } from '../../dist/adapters/inbox/sqlite.js'"}
  let highest = 0
  await serve(${receiver(inbox)}, { port: 0, hostname: '127.0.0.1' })`
const bareWorker = `export default { fetch: async (request) => {
  JSON.parse(await request.text())
  return new Response('${answerBody}', { headers: { 'content-type': 'application/json' } })
} }`
const worker = `
  import { createReceiver } from '../../dist/src/index.js'
  import { worker } from '../../dist/adapters/workers.js'
  let highest = 0
  export default worker(${receiver()})`

const programs: Readonly<Record<string, string>> = {
  bare: `
    import { createServer } from 'node:http'
    const server = createServer((request, response) => {
      const chunks = []
      request.on('data', (chunk) => { chunks.push(chunk) })
      request.on('end', () => {
        JSON.parse(Buffer.concat(chunks).toString())
        response.writeHead(200, { 'content-type': 'application/json', 'content-length': ${answerBody.length} })
        response.end('${answerBody}')
      })
    }).listen(0, '127.0.0.1', () => console.log('listening on http://127.0.0.1:' + server.address().port))`,
  memory: onNode(''),
  sqlite: onNode(`inbox: sqliteInbox({ path: '${folder}inbox-' + process.pid + '.db' })`),
  parsing: `JSON.parse(${JSON.stringify(message)})`,
  function: `
    import { createReceiver } from '../../dist/src/index.js'
    let highest = 0
    const { status } = await ${receiver("ack: 'handled'")}.accept({ authorization: '${secret}', body: ${JSON.stringify(message)} })
    if (status !== 200) throw new Error('The answer was ' + status)`,
}

/** A program that is started again and again. */
interface Course {
  readonly name: string
  /** The name of the program that it is compared with. */
  readonly base: string
  readonly start: () => Promise<number>
  readonly startMs: number[]
}

/** A server: from the start of its process to its first 200. */
function serving(name: string, base: string, target: TargetCommand): Course {
  const [command = target.command, ...args] = pinned(measuredCore, [target.command, ...target.args])
  return {
    name,
    base,
    startMs: [],
    async start() {
      const startedAt = performance.now()
      await using started = await spawnTarget({ ...target, command, args })
      await load({ port: Number(new URL(started.url).port), requests: [request], connections: 1, count: 1 })
      return performance.now() - startedAt
    },
  }
}

/** A function as a cloud runs it: one bundled file in a fresh process, until the answer to its first message. */
function running(name: string, base: string, file: string): Course {
  const [command = process.execPath, ...args] = pinned(measuredCore, [process.execPath, file])
  return {
    name,
    base,
    startMs: [],
    async start() {
      const startedAt = performance.now()
      execFileSync(command, args, { stdio: 'inherit' })
      return performance.now() - startedAt
    },
  }
}

if (!existsSync(`${root}dist`)) throw new Error('Run "npm run build" first.')
mkdirSync(folder, { recursive: true })
try {
  pinThis(loadCore)
  const written = (kind: string): string => {
    const file = `${folder}${kind}.mjs`
    writeFileSync(file, programs[kind]?.replaceAll("'../../dist/", `'${root}dist/`) ?? '')
    return file
  }
  const node = (kind: string): TargetCommand => ({
    runtime: 'node',
    command: runtimePath('node24'),
    args: [written(kind)],
  })
  const bundled = `${folder}bundled.mjs`
  const banner = "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);"
  await build({
    entryPoints: [written('function')],
    outfile: bundled,
    bundle: true,
    minify: true,
    format: 'esm',
    platform: 'node',
    banner: { js: banner },
  })
  const courses: readonly Course[] = [
    serving('node:http + JSON.parse', 'node:http + JSON.parse', node('bare')),
    serving('fleethook on Node', 'node:http + JSON.parse', node('memory')),
    serving('fleethook on Node, sqliteInbox', 'node:http + JSON.parse', node('sqlite')),
    running('a function that parses', 'a function that parses', written('parsing')),
    running('fleethook in a function, bundled', 'a function that parses', bundled),
    serving('workerd', 'workerd', await workerCommand(bareWorker, { resolveFrom: folder })),
    serving('fleethook on workerd', 'workerd', await workerCommand(worker, { resolveFrom: folder })),
  ]
  for (const course of courses) await course.start()
  for (let round = 0; round < starts; round++) for (const course of courses) course.startMs.push(await course.start())
  console.log(`Milliseconds from the start of the process to its first answer, medians of ${starts} starts in turns.\n`)
  console.log(
    table(
      ['what starts', 'ms', 'to bare'],
      courses.map(({ name, base, startMs }) => {
        const bare = courses.find((course) => course.name === base)?.startMs ?? []
        const ratio = median(startMs.map((ms, round) => ms / (bare[round] ?? Number.NaN)))
        return [name, median(startMs).toFixed(0), name === base ? '' : ratio.toFixed(2)]
      }),
    ),
  )
} finally {
  rmSync(folder, { recursive: true, force: true })
}
