import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { isBuiltin } from 'node:module'
import { dirname, join } from 'node:path'
import { expect, inject, test } from 'vitest'
import * as z from 'zod'
import { runtimePath } from '../../scripts/runtimes.ts'

const manifest = z
  .object({
    version: z.string(),
    license: z.string(),
    exports: z.record(z.string(), z.union([z.string(), z.looseObject({ types: z.string(), default: z.string() })])),
    imports: z.record(z.string(), z.object({ node: z.string(), default: z.string() })),
    bin: z.record(z.string(), z.string()),
    dependencies: z.record(z.string(), z.string()),
  })
  .parse(read('package.json'))
const jsr = z
  .object({
    version: z.string(),
    license: z.string(),
    exports: z.record(z.string(), z.string()),
    imports: z.record(z.string(), z.string()),
  })
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
  const { version, license, exports } = jsr
  expect({ version, license, exports }).toEqual({
    version: manifest.version,
    license: manifest.license,
    exports: Object.fromEntries(sources),
  })
})

test('JSR, which does not read `imports` of a package.json, has them as npm packages with their versions', () => {
  const named = Object.entries(manifest.imports).map(([name, { default: path }]) => {
    const [packageName = ''] = path.split('/')
    return [name, `npm:${path.replace(packageName, `${packageName}@${manifest.dependencies[packageName]}`)}`]
  })
  expect(named).not.toEqual([])
  expect(jsr.imports).toEqual(Object.fromEntries(named))
})

test('what Node imports is what a tool finds that copies the files of a server by the conditions `node` and `import`', () => {
  for (const [name, { node }] of Object.entries(manifest.imports)) {
    const resolved = `console.log(import.meta.resolve('${name}'))`
    const [onNode, onDefault] = [[], ['--no-addons']].map((flags) => {
      const args = [...flags, '--input-type=module', '--eval', resolved]
      return spawnSync(process.execPath, args, { cwd: process.cwd(), encoding: 'utf8' }).stdout.trim()
    })
    expect(onNode).toMatch(new RegExp(`/${node}/[^/]+$`))
    expect(onDefault).toBe(onNode)
  }
})

const packed = (): readonly string[] =>
  execFileSync('tar', ['-tzf', inject('tarball')], { encoding: 'utf8', stdio: 'pipe' })
    .split('\n')
    .map((path) => path.replace(/^package\//, ''))

test('the tarball holds every entry with its types, the command and the templates, and no test or script', () => {
  const files = packed()
  const promised = [...entries.flatMap(({ types, default: file }) => [types, file]), ...Object.values(manifest.bin)]
  expect(promised.map((path) => path.replace('./', '')).filter((path) => !files.includes(path))).toEqual([])
  expect(files.filter((path) => /^(test|scripts|bench|\.ci|\.runtimes)\//.test(path))).toEqual([])
  expect(files).toEqual(
    expect.arrayContaining([
      ...['README.md', 'LICENSE', 'examples/node/server.ts'],
      ...['dist/docs/handlers.md', 'dist/docs/troubleshooting.md', 'docs/skills/fleethook/SKILL.md'],
    ]),
  )
})

test('"Go to definition" finds the sources: each declaration has a map, and the tarball holds what the map names', () => {
  const files = new Set(packed())
  const folder = join(inject('consumer'), 'node_modules/fleethook')
  const declarations = [...files].filter((path) => /^dist\/.*\.d\.ts$/.test(path) && !path.includes('.generated.'))
  expect(declarations.length).toBeGreaterThan(100)
  const unmapped = declarations.filter((path) => {
    if (!files.has(`${path}.map`)) return true
    const { sources }: { readonly sources: readonly string[] } = JSON.parse(
      readFileSync(join(folder, `${path}.map`), 'utf8'),
    )
    return sources.length === 0 || !sources.every((source) => files.has(join(dirname(path), source)))
  })
  expect(unmapped).toEqual([])
})

test('every link of an installed page leads to an installed file or is absolute', () => {
  const files = packed()
  const pages = files.filter((path) => path.endsWith('.md'))
  expect(pages.length).toBeGreaterThan(10)
  const dead = pages.flatMap((page) => {
    const text = readFileSync(join(inject('consumer'), 'node_modules/fleethook', page), 'utf8')
    return [...text.replaceAll(/^```[\s\S]*?^```/gm, '').matchAll(/\]\((?![a-z]+:|#)([^)#\s]+)/g)]
      .map(([, link = '']) => join(dirname(page), link))
      .filter((target) => !files.some((file) => file === target || file.startsWith(`${target}/`)))
  })
  expect(dead).toEqual([])
})

test('every page that docstrings, hints and templates name is in the repository', () => {
  const files = packed().filter((path) => /^(dist|examples)\/.*\.(js|ts|md)$/.test(path))
  const folder = join(inject('consumer'), 'node_modules/fleethook')
  const named = files.flatMap((path) => readFileSync(join(folder, path), 'utf8').match(/\bdocs\/[\w/-]+\.\w+/g) ?? [])
  expect(named.length).toBeGreaterThan(2)
  expect(named.filter((page) => !existsSync(new URL(`../../${page}`, import.meta.url)))).toEqual([])
})

test('the license of every library in the package ships with it', () => {
  const folder = join(inject('consumer'), 'node_modules/fleethook/dist')
  const notices = readFileSync(join(folder, 'THIRD-PARTY-NOTICES.txt'), 'utf8')
    .split(`\n${'-'.repeat(80)}\n\n`)
    .map((text) => ({ name: /^(\S+) \d+\.\d+\.\d+ \(\S+\)\n/.exec(text)?.[1], text }))
  // The comment before each part names its source.
  const bundledIn = (path: string): readonly string[] =>
    [...readFileSync(join(folder, path), 'utf8').matchAll(/^\/\/ .*node_modules\/((?:@[^/]+\/)?[^/]+)/gm)].map(
      ([, name = '']) => name,
    )
  const bundled = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.js'))
    .flatMap(bundledIn)
  expect(bundled).toEqual(expect.arrayContaining(['zod', 'commander', '@bomb.sh/tab']))
  const names = notices.map(({ name }) => name)
  // The page of the inspector is a text in a module, without names of what it is made of.
  expect(names).toContain('preact')
  expect([...new Set(bundled)].filter((name) => !names.includes(name))).toEqual([])
  expect(notices.filter(({ text }) => !/Copyright.*\n[\s\S]*Permission (is hereby granted|to use)/.test(text))).toEqual(
    [],
  )
})

test('the command line imports only the dependencies', () => {
  const folder = join(inject('consumer'), 'node_modules/fleethook/dist/adapters/cli')
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

test.each(['node22.13', 'node24'] as const)('the installed command says what it can do on %s', (runtime) => {
  const command = join(inject('consumer'), 'node_modules/.bin/fleethook')
  expect(existsSync(command)).toBe(true)
  expect(readFileSync(command, 'utf8')).toMatch(/^#!\/usr\/bin\/env node\n/)
  expect(execFileSync(runtimePath(runtime), [command, '--help'], { encoding: 'utf8', stdio: 'pipe' })).toContain('send')
})

test('the command can be run from the unpacked package', () => {
  for (const file of Object.values(manifest.bin))
    expect(statSync(new URL(`../../${file}`, import.meta.url)).mode & 0o111, file).toBe(0o111)
})
