import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { build } from 'esbuild'
import { expect } from 'vitest'
import { type Runtime, runtimePath } from '../../scripts/runtimes.ts'
import { spawnTarget } from '../conformance/spawn.ts'
import { workerCommand } from '../runtimes/targets.ts'
import { newFolder } from '../folder.ts'

const programs = fileURLToPath(new URL('programs/', import.meta.url))

/** A program that uses a service, as a file for processes and as an import for a Worker. */
export interface Program {
  /** Prints what it saw as JSON. Reads SERVICE_URL and SERVICE_API_KEY. */
  readonly file: string
  /** An expression of the Worker that resolves to the same. `service` is the address and `key` the key. */
  readonly call: string
  /** What the expression needs. */
  readonly imports: string
  /** What the file reads beside the address and the key. */
  readonly env?: Readonly<Record<string, string>>
}

/** What a program saw on a runtime of the service at this address. */
export async function seenOn(runtime: Runtime, program: Program, url: string, key: string): Promise<unknown> {
  if (runtime !== 'workerd') {
    const flags = runtime === 'deno' ? ['run', '--allow-all'] : []
    const file = runtime === 'node22.13' ? await compiled(program.file) : `${programs}${program.file}`
    const env = { ...process.env, ...program.env, SERVICE_URL: url, SERVICE_API_KEY: key }
    const { stdout } = await promisify(execFile)(runtimePath(runtime), [...flags, file], { env })
    return JSON.parse(stdout)
  }
  const source = `
    ${program.imports}
    export default {
      async fetch(request) {
        const { service, key } = Object.fromEntries(new URL(request.url).searchParams)
        return Response.json(await ${program.call})
      },
    }`
  await using target = await spawnTarget(
    await workerCommand(source, { resolveFrom: programs, reachesThisMachine: true }),
  )
  const answer = await fetch(`${target.url}/?${String(new URLSearchParams({ service: url, key }))}`)
  expect(answer.status, target.output.join('\n')).toBe(200)
  return answer.json()
}

/** The program as one JavaScript file, because Node 22.13 cannot run TypeScript. */
async function compiled(file: string): Promise<string> {
  const outfile = join(newFolder('journey'), 'run.mjs')
  // Bundled CommonJS modules load Node's own modules by `require`.
  const banner = { js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);" }
  const entryPoints = [`${programs}${file}`]
  await build({ entryPoints, outfile, banner, bundle: true, format: 'esm', platform: 'node', target: 'node22.13' })
  return outfile
}
