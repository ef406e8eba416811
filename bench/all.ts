/**
 * Runs the benchmarks one after another, each in its own processes: `npm run bench -- all`. Takes about three minutes.
 */
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { cpus, loadavg, release, type } from 'node:os'
import { fileURLToPath } from 'node:url'
import { canPin, measuredCore, pinned } from './pin.ts'

const manifest = (name: string): { readonly version: string } =>
  JSON.parse(readFileSync(new URL(`../node_modules/${name}/package.json`, import.meta.url), 'utf8'))

function heading(title: string): void {
  console.log(`\n## ${title}\n`)
}

/** Runs a part. A part with several processes pins them itself. */
function part(script: string, pin: boolean): void {
  const path = fileURLToPath(new URL(script, import.meta.url))
  const all = pin ? pinned(measuredCore, [process.execPath, path]) : [process.execPath, path]
  const [command = process.execPath, ...args] = all
  if (spawnSync(command, args, { stdio: 'inherit' }).status !== 0) process.exitCode = 1
}

const libraries = ['hono', '@hono/node-server', 'express', 'zod'].map((name) => `${name} ${manifest(name).version}`)
const [cpu] = cpus()
console.log(`Node ${process.versions.node} (V8 ${process.versions.v8}), ${libraries.join(', ')}`)
console.log(
  `${type()} ${release()}, ${cpus().length} × ${cpu?.model.trim()}, ${canPin ? 'server and load on a core each' : 'processes not pinned'}`,
)
console.log(`Load of the machine before: ${loadavg()[0]?.toFixed(2)}`)

heading('From the socket to the handler')
part('pipeline.ts', false)
heading('One vehicle or a hundred thousand')
part('vins.ts', true)
heading('A hundred messages in a body')
part('batches.ts', true)
heading('Memory')
part('memory.ts', true)
heading('Normalising')
part('normalize.ts', true)
console.log(`\nLoad of the machine after: ${loadavg()[0]?.toFixed(2)}`)
