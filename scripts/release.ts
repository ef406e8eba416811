// `npm run release -- <command>`, for maintainers. `--help` lists the commands.
import { execFileSync } from 'node:child_process'
import { chmodSync, copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { runtimePath } from './runtimes.ts'

const commands: Readonly<Record<string, readonly [does: string, run: () => void]>> = {
  owner: ['writes the owner of the repository wherever it is named, and commits: `-- owner <name>`', nameOwner],
  note: ['asks what users notice of a change, and writes it to .changeset', (): void => run('changeset', 'add')],
  version: ['makes the next version of all notes: versions, changelog, commit and tag', version],
  notes: ['prints the changelog of the newest version', (): void => console.log(newestNotes())],
  pack: ['builds what `publish` needs, into the folder release', pack],
  publish: ['publishes what was packed to npm, JSR and GitHub; only the workflow may', publish],
}

function nameOwner(): void {
  run('node', 'scripts/owner.ts', process.argv[3] ?? '')
  run('git', 'commit', '--quiet', '--all', '--message', `chore: name the owner ${process.argv[3] ?? ''}`)
}

/** A registry would show links that lead nowhere, and npm refuses provenance for another repository than this one. */
function checkOwner(): void {
  if (!/github\.com\/OWNER\//.test(readFileSync('package.json', 'utf8'))) return
  console.error('error: package.json names no owner yet. Run: npm run release -- owner <the name on GitHub>')
  process.exit(2)
}

/** The newest version of a changelog, with what breaks in front: the notes that begin with "**Breaking:**". */
function breakingFirst(changelog: string): string {
  const [before = '', title = '', notes = '', rest = ''] = changelog.split(/^(## .*\n)([^]*?)(?=^## |(?![^]))/m)
  const all = notes.split(/^(?=- |### )/m)
  const breaking = all.filter((note) => /^- (?:\w{7}: )?\*\*Breaking:\*\*/.test(note))
  if (breaking.length === 0) return changelog
  const others = all.filter((note) => !breaking.includes(note))
  const list = breaking
    .map((note) => `${note.replace(/\*\*Breaking:\*\* (.)/, (_, first: string) => first.toUpperCase()).trimEnd()}\n`)
    .join('')
  return `${before}${title}\n### Breaking Changes\n\n${list}${others.join('')}${rest}`
}

function version(): void {
  checkOwner()
  run('changeset', 'version')
  writeFileSync('CHANGELOG.md', breakingFirst(readFileSync('CHANGELOG.md', 'utf8')))
  const { version: next }: { version: string } = JSON.parse(readFileSync('package.json', 'utf8'))
  const jsr = readFileSync('jsr.json', 'utf8')
  writeFileSync('jsr.json', jsr.replace(/("version": ")[^"]+/, `$1${next}`))
  run('npm', 'version', next, '--no-git-tag-version', '--allow-same-version', '--ignore-scripts')
  run('prettier', '--write', '--log-level', 'warn', 'CHANGELOG.md', 'package.json', 'jsr.json', '.changeset')
  run('git', 'add', '--all', '.changeset', 'CHANGELOG.md', 'package.json', 'package-lock.json', 'jsr.json')
  run('git', 'commit', '--quiet', '--allow-empty', '--message', `chore: release ${next}`)
  run('git', 'tag', '--annotate', `v${next}`, '--message', `v${next}`)
  console.log(`Committed and tagged v${next}. Publish it: git push --follow-tags`)
}

/** The changelog of the newest version, without its heading. */
function newestNotes(): string {
  const [, notes] = readFileSync('CHANGELOG.md', 'utf8').split(/^## .*\n/m)
  if (notes === undefined) throw new Error('CHANGELOG.md has no version.')
  return notes.trim()
}

function pack(): void {
  run('npm', 'run', '--silent', 'validate', '--', 'build', 'sbom')
  mkdirSync('release', { recursive: true })
  run('node', 'scripts/readme.ts', 'absolute')
  run('npm', 'pack', '--ignore-scripts', '--pack-destination', 'release')
  run('node', 'scripts/readme.ts', 'relative')
  copyFileSync('dist/sbom.cdx.json', 'release/sbom.cdx.json')
  run('node', 'scripts/runtimes.ts')
  copyFileSync(
    execFileSync(runtimePath('deno'), ['eval', 'console.log(Deno.execPath())']).toString().trim(),
    'release/deno',
  )
  // Deno reads the types of what the sources import.
  run('tar', '-czf', 'release/node_modules.tar.gz', 'node_modules')
}

/** Runs with a token that can publish, so it installs nothing and builds nothing. A second run goes on where the first one failed. */
function publish(): void {
  checkOwner()
  const { name, version: of }: { name: string; version: string } = JSON.parse(readFileSync('package.json', 'utf8'))
  const packed = readdirSync('release').find((file) => file.endsWith('.tgz')) ?? ''
  if (!succeeds('npm', 'view', `${name}@${of}`, 'version'))
    run('npm', 'publish', `./release/${packed}`, '--ignore-scripts', '--access', 'public', '--provenance')
  const tag = `v${of}`
  if (!succeeds('gh', 'release', 'view', tag))
    run(
      'gh',
      'release',
      'create',
      tag,
      '--verify-tag',
      '--title',
      tag,
      '--notes',
      newestNotes(),
      'release/sbom.cdx.json',
    )
  // Last, because JSR is the registry that an owner may not have set up. It leaves out a version that it has.
  run('tar', '-xzf', 'release/node_modules.tar.gz')
  chmodSync('release/deno', 0o755)
  run('release/deno', 'publish', '--allow-dirty')
}

/** Whether a program ends well. `npm view` prints nothing for a version that is not there, and succeeds. */
function succeeds(program: string, ...args: readonly string[]): boolean {
  try {
    return execFileSync(program, args, { stdio: 'pipe', shell: process.platform === 'win32' }).length > 0
  } catch {
    return false
  }
}

function run(program: string, ...args: readonly string[]): void {
  execFileSync(program, args, { stdio: 'inherit', shell: process.platform === 'win32' })
}

const [name = ''] = process.argv.slice(2)
const command = commands[name]
if (command === undefined) {
  console.log('npm run release -- <command>\n')
  for (const [known, [does]] of Object.entries(commands)) console.log(`  ${known.padEnd(9)}${does}`)
  process.exitCode = name === '--help' ? 0 : 1
} else command[1]()
