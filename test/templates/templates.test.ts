import { execFile, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest'
import { runtimePath } from '../../scripts/runtimes.ts'
import { inForm } from '../form.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const examples = join(root, 'examples')
const names = readdirSync(examples).filter((name) => existsSync(join(examples, name, 'package.json')))
const compiler = join(root, 'node_modules/typescript/bin/tsc')
let scratch: string

beforeAll(() => {
  scratch = realpathSync(mkdtempSync(join(tmpdir(), 'fleethook-templates-')))
})
afterAll(() => rmSync(scratch, { recursive: true, force: true }))

test('the templates are the ones that the documentation names', () => {
  expect(names).toEqual([
    'bun',
    'charging-alerts',
    'charging-sessions',
    'deno',
    'express',
    'fastify',
    'geofence-alerts',
    'kafka',
    'lambda',
    'nextjs',
    'node',
    'sqlite',
    'trips',
    'workers',
    'workers-durable',
    'workers-storage',
  ])
})

/** Templates that are an application, and not only a receiver. */
const applications = ['charging-sessions', 'geofence-alerts', 'trips']

test.each(names)(
  '%s shows its receiver in at most 40 lines, an application in fewer than 80, and lists typescript when it has a tsconfig',
  (name) => {
    const sources = committed(name).filter((path) => path.endsWith('.ts') && !/\.(test|d)\.ts$/.test(path))
    expect(sources.length).toBeGreaterThan(0)
    for (const path of sources)
      expect(
        readFileSync(join(examples, name, path), 'utf8')
          .trimEnd()
          .split('\n').length,
      ).toBeLessThanOrEqual(applications.includes(name) ? 79 : 40)
    const { devDependencies } = JSON.parse(readFileSync(join(examples, name, 'package.json'), 'utf8'))
    expect('typescript' in devDependencies).toBe(existsSync(join(examples, name, 'tsconfig.json')))
  },
)

describe('each template stands on its own: what the installed package copies installs, compiles, and passes its test', () => {
  test.each(inForm({ short: ['node'], full: names }))('%s', { timeout: 300_000 }, async (name) => {
    const folder = join(scratch, name)
    const cli = join(inject('consumer'), 'node_modules/fleethook/dist/adapters/cli/main.js')
    await run(scratch, process.execPath, [cli, 'init', name, folder, '--yes'])
    expect(committed(name).filter((path) => !existsSync(join(folder, path)))).toEqual([])

    const manifest = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
    manifest.dependencies.fleethook = `file:${inject('tarball')}`
    writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest, null, 2))
    // Deno takes a tarball only from a node_modules that somebody else has filled.
    const denoJson = join(folder, 'deno.json')
    if (existsSync(denoJson)) writeFileSync(denoJson, readFileSync(denoJson, 'utf8').replace('"auto"', '"manual"'))
    const quiet = ['--no-audit', '--no-fund', '--prefer-offline', '--no-package-lock', '--loglevel=error']
    await run(folder, 'npm', ['install', ...quiet])

    const output = await run(folder, 'npm', ['test'])
    expect(output).toMatch(/(pass [1-9]|[1-9] pass)/)
    expect(output).toMatch(/(fail 0|0 fail)/)
    if (existsSync(join(folder, 'server.ts'))) await expectOneBlockWhenThePortIsTaken(folder, manifest.scripts.start)
    if (existsSync(denoJson)) await run(folder, runtimePath('deno'), ['check', 'server.ts', 'server.test.ts'])
    else await run(folder, process.execPath, [compiler, '--project', folder, '--noEmit'])
    rmSync(folder, { recursive: true, force: true })
  })
})

async function expectOneBlockWhenThePortIsTaken(folder: string, start: string): Promise<void> {
  const holder = createServer().listen(0)
  await once(holder, 'listening')
  const address = holder.address()
  if (address === null || typeof address === 'string') throw new Error('The server has no port.')
  const runtime = /^(bun|deno)/.exec(start)?.[0]
  const [program, args] =
    runtime === undefined
      ? [process.execPath, []]
      : [runtimePath(runtime === 'bun' ? 'bun' : 'deno'), runtime === 'deno' ? ['run', '--allow-all'] : []]
  const env = {
    ...process.env,
    HOST: '::',
    PORT: String(address.port),
    WEBHOOK_SECRET: 'a-long-random-value',
    CHAT_WEBHOOK_URL: 'http://localhost:9/',
    NO_COLOR: '1',
  }
  const { status, stderr } = spawnSync(program, [...args, 'server.ts'], { cwd: folder, env, encoding: 'utf8' })
  holder.close()
  expect({ status, stderr }).toEqual({
    status: 1,
    stderr: expect.stringMatching(/^fleethook: .*(EADDRINUSE|AddrInUse).*\n( {2}Another process has this port.*\n)?$/),
  })
}

/** The files of a template in the repository, and not what a run has left there. */
function committed(name: string): readonly string[] {
  const left =
    /(^|\/)(node_modules|dist|\.next|\.wrangler|next-env\.d\.ts|\.env|\.dev\.vars|package-lock\.json)(\/|$)|\.db/
  return readdirSync(join(examples, name), { recursive: true, encoding: 'utf8' }).filter((path) => !left.test(path))
}

/** Runs a program, with the runtimes of the tests before those of the machine. */
async function run(cwd: string, program: string, args: readonly string[]): Promise<string> {
  const paths = [dirname(process.execPath), dirname(runtimePath('bun')), process.env['PATH']]
  const { NODE_OPTIONS: _options, VITEST: _vitest, NODE_ENV: _mode, ...env } = process.env
  try {
    const { stdout, stderr } = await promisify(execFile)(program, [...args], {
      cwd,
      env: {
        ...env,
        PATH: paths.join(delimiter),
        NO_COLOR: '1',
        NEXT_TELEMETRY_DISABLED: '1',
        WRANGLER_SEND_METRICS: 'false',
      },
      maxBuffer: 64 * 1024 * 1024,
    })
    return stdout + stderr
  } catch (error) {
    const { stdout = '', stderr = '' } = error as { stdout?: string; stderr?: string }
    throw new Error(`${program} ${args.join(' ')} failed in ${cwd}:\n${stdout}\n${stderr}`, { cause: error })
  }
}
