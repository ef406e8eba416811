import { execFileSync, spawnSync } from 'node:child_process'
import { chmodSync, cpSync, existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { root } from './project.ts'
import { newFolder } from '../folder.ts'

const copied = [
  ...['package.json', 'package-lock.json', 'jsr.json', 'README.md', 'CHANGELOG.md', 'scripts'],
  ...['.changeset/config.json', '.github/CODEOWNERS'],
]

interface Repository {
  readonly folder: string
  run(program: string, ...args: readonly string[]): string
  /** `npm run release --`, with its status and all that it prints. */
  release(...args: readonly string[]): { readonly status: number | null; readonly said: string }
  read(name: string): string
}

/** A repository with what a release needs of this one, and programs in `bin` that come first. */
function newRepository(): Repository {
  const folder = newFolder('release')
  for (const name of copied)
    cpSync(join(root, name), join(folder, name), { recursive: true, filter: (path) => !path.endsWith('node_modules') })
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'))
  const paths = ['node_modules/node/bin', 'node_modules/.bin'].map((path) => join(root, path))
  const env = {
    ...process.env,
    PATH: [join(folder, 'bin'), ...paths, process.env['PATH']].join(delimiter),
    GIT_CONFIG_GLOBAL: join(folder, 'gitconfig'),
  }
  writeFileSync(join(folder, 'gitconfig'), '[user]\nname = A\nemail = a@example.com\n[init]\ndefaultBranch = main\n')
  writeFileSync(join(folder, '.gitignore'), 'node_modules\ngitconfig\nbin\nrelease\n')
  const run: Repository['run'] = (program, ...args) =>
    execFileSync(program, args, { cwd: folder, env, encoding: 'utf8', stdio: 'pipe' })
  run('git', 'init', '--quiet')
  run('git', 'add', '--all')
  run('git', 'commit', '--quiet', '--message', 'feat: a receiver')
  return {
    folder,
    run,
    release(...args) {
      const given = ['scripts/release.ts', ...args]
      const { status, stdout, stderr } = spawnSync(process.execPath, given, { cwd: folder, env, encoding: 'utf8' })
      return { status, said: stdout + stderr }
    },
    read: (name) => readFileSync(join(folder, name), 'utf8'),
  }
}

test(
  'one command makes the next version of the notes: manifests, changelog, commit and tag',
  { timeout: 180_000 },
  () => {
    const { folder, run, release, read } = newRepository()
    const note = (name: string, kind: string, text: string): void =>
      writeFileSync(join(folder, `.changeset/${name}.md`), `---\n'fleethook': ${kind}\n---\n\n${text}\n`)
    note('kind-otters', 'minor', 'Reads a fourth format.')
    note('old-otters', 'minor', '**Breaking:** the third format is gone.\n\nUse the fourth.')
    note('shy-otters', 'patch', 'Mends the first.')

    expect(release('version')).toMatchObject({ status: 2, said: expect.stringContaining('npm run release -- owner') })
    expect(release('owner', 'acme')).toMatchObject({ status: 0 })
    run('git', 'add', '--all')
    run('git', 'commit', '--quiet', '--message', 'feat: a fourth format')

    const [major, minor] = JSON.parse(read('package.json')).version.split('.').map(Number)
    const next = `${major}.${minor + 1}.0`
    expect(release('version').said).toContain(`tagged v${next}`)
    for (const name of ['package.json', 'package-lock.json', 'jsr.json'])
      expect(JSON.parse(read(name)).version).toBe(next)
    expect(read('package.json')).toContain('github.com/acme/fleethook')
    expect(release('notes').said.replaceAll(/\w{7}: /g, '')).toBe(
      `### Breaking Changes\n\n- The third format is gone.\n\n  Use the fourth.\n\n### Minor Changes\n\n- Reads a fourth format.\n\n### Patch Changes\n\n- Mends the first.\n`,
    )
    expect(run('git', 'status', '--porcelain')).toBe('')
    expect(run('git', 'describe', '--exact-match')).toBe(`v${next}\n`)
  },
)

describe.skipIf(process.platform === 'win32')('publishing', () => {
  /** Programs that write down how they were called. `published`: what npm and GitHub have already. */
  function fakes({ folder }: Repository): void {
    const program = (name: string, answer: string): void => {
      writeFileSync(join(folder, name), `#!/bin/sh\necho "\${0##*/} $*" >> calls\n${answer}\n`)
      chmodSync(join(folder, name), 0o755)
    }
    for (const name of ['bin', 'release']) mkdirSync(join(folder, name))
    program('bin/npm', 'if [ "$1" = view ] && [ -e published ]; then echo 0.1.0; fi')
    program('bin/gh', 'if [ "$2" = view ]; then [ -e published ] && echo v0.1.0; fi')
    program('bin/tar', '')
    program('release/deno', '[ ! -e jsr-is-away ]')
    writeFileSync(join(folder, 'release/fleethook-0.1.0.tgz'), '')
  }

  test('needs the owner, then publishes to npm, GitHub and JSR, and a second run leaves out what is there', () => {
    const repository = newRepository()
    const { folder, release, read } = repository
    fakes(repository)
    expect(release('publish')).toMatchObject({ status: 2 })
    expect(existsSync(join(folder, 'calls'))).toBe(false)
    release('owner', 'acme')

    const { version }: { version: string } = JSON.parse(read('package.json'))
    writeFileSync(join(folder, 'jsr-is-away'), '')
    expect(release('publish').status).toBe(1)
    const calls = read('calls')
    expect(calls).toContain('npm publish ./release/fleethook-0.1.0.tgz --ignore-scripts --access public --provenance\n')
    expect(calls).toContain(`gh release create v${version} --verify-tag`)
    expect(calls.trimEnd()).toMatch(/\ndeno publish --allow-dirty$/)

    rmSync(join(folder, 'jsr-is-away'))
    rmSync(join(folder, 'calls'))
    writeFileSync(join(folder, 'published'), '')
    expect(release('publish').status).toBe(0)
    expect(read('calls')).not.toMatch(/npm publish|release create/)
    expect(read('calls')).toContain('deno publish')
  })
})
