import { execFile } from 'node:child_process'
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest'
import { runtimePath } from '../../scripts/runtimes.ts'

const examples = fileURLToPath(new URL('../../examples', import.meta.url))
const names = readdirSync(examples).filter((name) => existsSync(join(examples, name, 'package.json')))
let scratch: string

beforeAll(() => {
  scratch = realpathSync(mkdtempSync(join(tmpdir(), 'fleethook-templates-')))
})
afterAll(() => rmSync(scratch, { recursive: true, force: true }))

test('the templates are the ones that the documentation names', () => {
  expect(names).toEqual([
    'bun',
    'charging-alerts',
    'deno',
    'express',
    'fastify',
    'lambda',
    'nextjs',
    'node',
    'sqlite',
    'workers',
    'workers-storage',
  ])
})

describe('each template stands on its own: copied to an empty folder, installed from the package, its test passes', () => {
  test.each(names)('%s', { timeout: 300_000 }, async (name) => {
    const folder = join(scratch, name)
    cpSync(join(examples, name), folder, {
      recursive: true,
      filter: (path) => !/node_modules|\.next|\.wrangler/.test(path),
    })
    const manifest = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
    manifest.dependencies.fleethook = `file:${inject('tarball')}`
    writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest, null, 2))
    const denoJson = join(folder, 'deno.json')
    // Deno takes a tarball only from a node_modules that somebody else has filled.
    if (existsSync(denoJson)) writeFileSync(denoJson, readFileSync(denoJson, 'utf8').replace('"auto"', '"manual"'))
    await run(folder, [
      'install',
      '--no-audit',
      '--no-fund',
      '--prefer-offline',
      '--no-package-lock',
      '--loglevel=error',
    ])
    const output = await run(folder, ['test'])
    expect(output).toMatch(/pass 1|1 pass|ok \| [1-9]|pass [1-9]/)
    rmSync(folder, { recursive: true, force: true })
  })
})

/** npm, with the runtimes of the tests before those of the machine. */
async function run(cwd: string, args: readonly string[]): Promise<string> {
  const paths = [dirname(process.execPath), dirname(runtimePath('bun')), process.env['PATH']]
  const { NODE_OPTIONS: _options, VITEST: _vitest, NODE_ENV: _mode, ...env } = process.env
  try {
    const { stdout, stderr } = await promisify(execFile)('npm', [...args], {
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
    throw new Error(`npm ${args.join(' ')} failed in ${cwd}:\n${stdout}\n${stderr}`, { cause: error })
  }
}
