import { execFileSync } from 'node:child_process'
import { cpSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { expect, test } from 'vitest'
import { root } from './project.ts'
import { newFolder } from '../folder.ts'

test(
  'one command makes the next version of the notes: manifests, changelog, commit and tag',
  { timeout: 180_000 },
  () => {
    const folder = newFolder('version')
    for (const name of [
      'package.json',
      'package-lock.json',
      'jsr.json',
      'CHANGELOG.md',
      'scripts',
      '.changeset/config.json',
    ])
      cpSync(join(root, name), join(folder, name), {
        recursive: true,
        filter: (path) => !path.endsWith('node_modules'),
      })
    symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'))
    const paths = [join(root, 'node_modules/node/bin'), join(root, 'node_modules/.bin'), process.env['PATH']]
    const env = { ...process.env, PATH: paths.join(delimiter), GIT_CONFIG_GLOBAL: join(folder, 'gitconfig') }
    const run = (program: string, ...args: readonly string[]): string =>
      execFileSync(program, args, { cwd: folder, env, encoding: 'utf8', stdio: 'pipe' })
    const read = (name: string): string => readFileSync(join(folder, name), 'utf8')
    writeFileSync(join(folder, 'gitconfig'), '[user]\nname = A\nemail = a@example.com\n[init]\ndefaultBranch = main\n')
    writeFileSync(join(folder, '.gitignore'), 'node_modules\ngitconfig\n')
    writeFileSync(join(folder, '.changeset/kind-otters.md'), "---\n'fleethook': minor\n---\n\nReads a fourth format.\n")
    run('git', 'init', '--quiet')
    run('git', 'add', '--all')
    run('git', 'commit', '--quiet', '--message', 'feat: a fourth format')

    const [major, minor] = JSON.parse(read('package.json')).version.split('.').map(Number)
    const next = `${major}.${minor + 1}.0`
    expect(run(process.execPath, 'scripts/release.ts', 'version')).toContain(`tagged v${next}`)
    for (const name of ['package.json', 'package-lock.json', 'jsr.json'])
      expect(JSON.parse(read(name)).version).toBe(next)
    // The notes of this checkout are there, too.
    expect(run(process.execPath, 'scripts/release.ts', 'notes')).toMatch(
      /^### Minor Changes\n\n(?:[^]*\n)?- \w{7}: Reads a fourth format\.\n/,
    )
    expect(run('git', 'status', '--porcelain')).toBe('')
    expect(run('git', 'describe', '--exact-match')).toBe(`v${next}\n`)
  },
)
