import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, inject, test } from 'vitest'
import * as z from 'zod'
import { runtimePath } from '../../scripts/runtimes.ts'

const manifest = z
  .object({
    version: z.string(),
    license: z.string(),
    exports: z.record(z.string(), z.union([z.string(), z.object({ types: z.string(), default: z.string() })])),
    bin: z.record(z.string(), z.string()),
    dependencies: z.record(z.string(), z.string()),
  })
  .parse(read('package.json'))
const jsr = z
  .object({ version: z.string(), license: z.string(), exports: z.record(z.string(), z.string()) })
  .parse(read('jsr.json'))
const entries = Object.entries(manifest.exports).flatMap(([name, to]) =>
  typeof to === 'string' ? [] : [{ name, ...to }],
)

function read(path: string): unknown {
  return JSON.parse(readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8'))
}

test('JSR has the entries, the version and the license of the npm package', () => {
  const sources = entries.map(({ name, default: file }) => [
    name,
    file.replace('./dist/', './').replace(/\.js$/, '.ts'),
  ])
  expect(jsr).toEqual({ version: manifest.version, license: manifest.license, exports: Object.fromEntries(sources) })
})

test('the tarball holds every entry with its types, the command, the sources and the templates, and no test', () => {
  const files = execFileSync('tar', ['-tzf', inject('tarball')], { encoding: 'utf8' }).split('\n')
  const promised = [...entries.flatMap(({ types, default: file }) => [types, file]), ...Object.values(manifest.bin)]
  expect(promised.map((path) => path.replace('./', 'package/')).filter((path) => !files.includes(path))).toEqual([])
  expect(files.filter((path) => /^package\/(test|scripts|bench|\.ci|\.runtimes)\//.test(path))).toEqual([])
  expect(files).toEqual(
    expect.arrayContaining(['package/README.md', 'package/LICENSE', 'package/CHANGELOG.md', 'package/src/receiver.ts']),
  )
})

test('dependencies are pinned to exact versions', () => {
  expect(Object.values(manifest.dependencies).filter((version) => !/^\d+\.\d+\.\d+$/.test(version))).toEqual([])
})

test.each(['node20', 'node24'] as const)('the installed command says what it can do on %s', (runtime) => {
  const command = join(inject('consumer'), 'node_modules/.bin/fleethook')
  expect(existsSync(command)).toBe(true)
  expect(readFileSync(command, 'utf8')).toMatch(/^#!\/usr\/bin\/env node\n/)
  expect(execFileSync(runtimePath(runtime), [command, '--help'], { encoding: 'utf8' })).toContain('send')
})

test('on Node 20, which does not run the templates, init and sandbox --data say so, and nothing is left of the latter', () => {
  const command = join(inject('consumer'), 'node_modules/.bin/fleethook')
  const cwd = mkdtempSync(join(tmpdir(), 'fleethook-package-'))
  const run = (
    ...args: string[]
  ): { readonly status: number | null; readonly stdout: string; readonly stderr: string } =>
    spawnSync(runtimePath('node20'), [command, ...args], { cwd, encoding: 'utf8' })
  expect(run('init', 'node', 'receiver')).toMatchObject({
    status: 0,
    stdout: expect.stringMatching(/It needs Node 22\.18 or newer, and this is 20\.\d+\.\d+/),
  })
  expect(run('sandbox', '--port', '0', '--data', 'sandbox.db')).toMatchObject({
    status: 2,
    stderr: expect.stringMatching(/^error: --data needs `node:sqlite`.*Run Node 22\.13 or later.*leave out --data/),
  })
  expect(readdirSync(cwd)).toEqual(['receiver'])
})
