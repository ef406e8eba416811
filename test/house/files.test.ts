import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { runtimePackages } from '../../scripts/runtimes.ts'
import { filesUnder, root } from './project.ts'

const read = (path: string): string => readFileSync(`${root}${path}`, 'utf8')
const texts = filesUnder('').filter((path) =>
  /\.(ts|mts|js|mjs|json|jsonc|md|toml|yml|yaml|sh|html|capnp)$|^\.ci\//.test(path),
)

test('the top level holds these files and folders, and nothing else', () => {
  const house = [
    ...['src', 'adapters', 'test', 'examples', 'docs', 'bench', 'scripts', '.ci', '.github', '.gitignore', '.npmrc'],
    ...['.changeset', '.devcontainer', '.editorconfig', '.nvmrc'],
    ...['package.json', 'package-lock.json', 'tsconfig.json', 'jsr.json'],
    ...['AGENTS.md', 'README.md', 'LICENSE', 'CHANGELOG.md', 'CONTRIBUTING.md', 'CONTEXT.md', 'SECURITY.md'],
  ]
  const notCommitted = ['.git', 'node_modules', 'dist', '.runtimes', '.env', 'data', '.vscode', '.idea', '.DS_Store']
  expect(
    readdirSync(root)
      .filter((name) => !notCommitted.includes(name) && !/\.(log|tgz)$/.test(name))
      .sort(),
  ).toEqual(house.sort())
})

test('no file name says utils, helpers, common or misc', () => {
  expect(filesUnder('').filter((path) => /\b(utils?|helpers?|common|misc)\b/i.test(path))).toEqual([])
})

describe('the lock', () => {
  const runtimes = 'scripts/runtimes/package-lock.json'
  const packagesOf = (path: string): Readonly<Record<string, object>> => JSON.parse(read(path)).packages

  const ofCommands = filesUnder('scripts/install').filter((path) => path.endsWith('/package-lock.json'))

  test.each(['package-lock.json', runtimes, ...ofCommands])(
    '%s has the hash of every package, and no address',
    (path) => {
      const installed = Object.entries(packagesOf(path)).filter(([name]) => name !== '')
      expect(installed.length).toBeGreaterThan(0)
      for (const [name, locked] of installed) {
        expect({ name, ...locked }).toHaveProperty('integrity', expect.stringMatching(/^sha512-/))
        expect({ name, ...locked }).not.toHaveProperty('resolved')
      }
    },
  )

  test('of the test runtimes has the versions that are installed', () => {
    const versions = Object.entries(runtimePackages).map(([name, version]) => [name, version.replace(/^npm:.*@/, '')])
    const locked = packagesOf(runtimes)
    const found = versions.map(([name]) => [
      name,
      Object.entries(locked[`node_modules/${name}`] ?? {}).find(([key]) => key === 'version')?.[1],
    ])
    expect(found).toEqual(versions)
  })
})

describe('no text', () => {
  const registry = new URL(
    execFileSync('npm', ['config', 'get', 'registry'], { encoding: 'utf8', stdio: 'pipe' }).trim(),
  ).host
  const isPublicRegistry = registry === ['registry', 'npmjs', 'org'].join('.')

  const rules: readonly (readonly [what: string, found: (text: string) => boolean, caught: string])[] = [
    ['leaves work to be done', (text) => /\b(TO{1}DO|FIX{1}ME|X{3})\b/.test(text), ['// TO', 'DO later'].join('')],
    ['names a folder of the machine it was written on', namesMachine, `see ${root}README.md`],
    [
      'names the registry that served the packages',
      (text) => !isPublicRegistry && text.includes(registry),
      `https://${registry}/x`,
    ],
  ]

  test.each(rules)('%s', (_what, found) => {
    expect(texts.length).toBeGreaterThan(0)
    expect(texts.filter((path) => found(read(path)))).toEqual([])
  })

  test.each(rules)('control: one that %s is found', (what, found, caught) => {
    expect(found(caught) || (what.includes('registry') && isPublicRegistry)).toBe(true)
    expect(found('a text like any other, /work and https://example.com/home included')).toBe(false)
  })

  function namesMachine(text: string): boolean {
    return text.includes(root) || /(?<![\w.:/-])\/(home|Users|root|work|private)\/\w/.test(text)
  }
})
