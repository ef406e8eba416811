import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync } from 'node:fs'
import { isBuiltin } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, inject, test } from 'vitest'
import * as z from 'zod'
import { withOwner } from '../../scripts/owner.ts'
import { runtimePath } from '../../scripts/runtimes.ts'

const manifest = z
  .object({
    version: z.string(),
    license: z.string(),
    exports: z.record(z.string(), z.union([z.string(), z.object({ types: z.string(), default: z.string() })])),
    bin: z.record(z.string(), z.string()),
    dependencies: z.record(z.string(), z.string()),
    homepage: z.string(),
    bugs: z.string(),
    repository: z.object({ type: z.literal('git'), url: z.string() }),
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

const packed = (): readonly string[] =>
  execFileSync('tar', ['-tzf', inject('tarball')], { encoding: 'utf8', stdio: 'pipe' })
    .split('\n')
    .map((path) => path.replace(/^package\//, ''))

test('the tarball holds every entry with its types, the command, the docs and the templates, and no source or test', () => {
  const files = packed()
  const promised = [...entries.flatMap(({ types, default: file }) => [types, file]), ...Object.values(manifest.bin)]
  expect(promised.map((path) => path.replace('./', '')).filter((path) => !files.includes(path))).toEqual([])
  expect(files.filter((path) => /^(src|adapters|test|scripts|bench|\.ci|\.runtimes)\//.test(path))).toEqual([])
  expect(files).toEqual(
    expect.arrayContaining(['README.md', 'LICENSE', 'CHANGELOG.md', 'docs/inbox.md', 'examples/node/server.ts']),
  )
})

test('the tarball holds every page that its docstrings and templates name', () => {
  const files = packed()
  const folder = join(inject('consumer'), 'node_modules/fleethook')
  const texts = files.filter((path) => /^(dist|examples)\/.*\.(js|ts|md)$/.test(path) && !path.includes('/cli/'))
  const named = texts.flatMap((path) => readFileSync(join(folder, path), 'utf8').match(/\bdocs\/[\w/-]+\.\w+/g) ?? [])
  expect(named.length).toBeGreaterThan(2)
  expect(named.filter((page) => !files.includes(page))).toEqual([])
})

test('the licenses of the libraries in the package ship with it, and the command line imports only the dependencies', () => {
  const folder = join(inject('consumer'), 'node_modules/fleethook/dist/adapters/cli')
  const notices = readFileSync(join(folder, '../../THIRD-PARTY-NOTICES.txt'), 'utf8')
  for (const name of ['zod', 'commander', '@clack/prompts', 'log-update', 'picocolors', 'wrap-ansi', 'pretty-ms'])
    expect(notices).toMatch(new RegExp(`^${name} \\d+\\.\\d+\\.\\d+ \\(\\S+\\)$`, 'm'))
  const imported = readdirSync(folder)
    .filter((file) => file.endsWith('.js'))
    .flatMap((file) => [
      ...readFileSync(join(folder, file), 'utf8').matchAll(/^(?:import|} from|import .* from) "([^".][^"]*)"/gm),
    ])
    .flatMap(([, name = '']) => /^(@[^/]+\/)?[^/]+/.exec(name)?.[0] ?? [])
    .filter((name) => !isBuiltin(name))
  expect(
    [...new Set(imported)].filter(
      (name) => !['hono', '@opentelemetry/api', ...Object.keys(manifest.dependencies)].includes(name),
    ),
  ).toEqual([])
})

test('there are at most seven dependencies, each as a range of one major version', () => {
  const ranges = Object.values(manifest.dependencies)
  expect(ranges.length).toBeLessThanOrEqual(7)
  expect(ranges.filter((range) => !/^\^\d+\.\d+\.\d+$/.test(range))).toEqual([])
})

test('one script sets the owner in every field from which a registry makes links', () => {
  const { homepage, bugs, repository } = JSON.parse(withOwner(JSON.stringify(manifest), 'some-fleet'))
  expect({ homepage, bugs, repository }).toEqual({
    homepage: 'https://github.com/some-fleet/fleethook#readme',
    bugs: 'https://github.com/some-fleet/fleethook/issues',
    repository: { type: 'git', url: 'git+https://github.com/some-fleet/fleethook.git' },
  })
  expect(() => withOwner('{}', 'not an owner')).toThrow('cannot be an owner')
})

/** The page of the registry shows the README. Its relative links lead into the repository. */
test('every link of the README leads to a file of the repository, or is absolute', () => {
  const readme = readFileSync(new URL('../../README.md', import.meta.url), 'utf8').replaceAll(/^```[\s\S]*?^```/gm, '')
  const links = [...readme.matchAll(/\]\(([^)\s]+)\)/g)].map(([, link = '']) => link)
  expect(links.length).toBeGreaterThan(5)
  const isBroken = (link: string): boolean =>
    !/^(https:\/\/|#)/.test(link) &&
    (link.startsWith('/') ||
      link.startsWith('..') ||
      !existsSync(new URL(`../../${link.replace(/#.*/, '')}`, import.meta.url)))
  expect(links.filter(isBroken)).toEqual([])
})

test.each(['node20', 'node24'] as const)('the installed command says what it can do on %s', (runtime) => {
  const command = join(inject('consumer'), 'node_modules/.bin/fleethook')
  expect(existsSync(command)).toBe(true)
  expect(readFileSync(command, 'utf8')).toMatch(/^#!\/usr\/bin\/env node\n/)
  expect(execFileSync(runtimePath(runtime), [command, '--help'], { encoding: 'utf8', stdio: 'pipe' })).toContain('send')
})

test('on Node 20, init and sandbox --data say that they need a newer Node, and the latter leaves no file', () => {
  const command = join(inject('consumer'), 'node_modules/.bin/fleethook')
  const cwd = mkdtempSync(join(tmpdir(), 'fleethook-package-'))
  const run = (
    ...args: string[]
  ): { readonly status: number | null; readonly stdout: string; readonly stderr: string } =>
    spawnSync(runtimePath('node20'), [command, ...args], { cwd, encoding: 'utf8' })
  expect(run('init', 'node', 'receiver')).toMatchObject({
    status: 0,
    stdout: expect.stringMatching(/needs Node 22\.18 or newer, and this is 20\.\d+\.\d+/),
  })
  expect(run('sandbox', '--port', '0', '--data', 'sandbox.db')).toMatchObject({
    status: 2,
    stderr: expect.stringMatching(/^error: --data needs `node:sqlite`.*Run Node 22\.13 or later.*leave out --data/),
  })
  expect(readdirSync(cwd)).toEqual(['receiver'])
})
