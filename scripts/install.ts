// Installs what single commands need beside `npm ci`: `node scripts/install.ts docs`. With a command behind `--`, runs it with the
// installed programs in the PATH: `node scripts/install.ts docs -- vitepress dev docs`.
// `install/<name>` has the manifest and the lock. After a change of a manifest: node scripts/install.ts --lock <name>
import { execFileSync, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { copyFileSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { env, pid, platform } from 'node:process'
import { fileURLToPath } from 'node:url'

/** The manifests, and the folder whose files find the packages: they are in its `node_modules`. */
const places = {
  bench: 'bench/postgres',
  checks: 'scripts',
  clients: 'test/postgres/clients',
  docs: 'docs',
  page: 'test/inspector/page',
  release: 'test/release',
} as const
type Name = keyof typeof places

const root = fileURLToPath(new URL('..', import.meta.url))
const folderOf = (name: Name): string => join(root, 'scripts/install', name)
const modulesOf = (name: Name): string => join(root, places[name], 'node_modules')
const files = ['package.json', 'package-lock.json'] as const

const isName = (name: string): name is Name => Object.hasOwn(places, name)

/** What tells one state of a manifest from another. */
function hashOf(name: Name): string {
  const hash = createHash('sha256')
  for (const file of files) hash.update(readFileSync(join(folderOf(name), file)))
  return hash.digest('hex')
}

function npm(cwd: string, ...args: readonly string[]): void {
  execFileSync('npm', [...args, '--no-audit', '--no-fund', '--loglevel=error'], {
    cwd,
    stdio: ['ignore', 'ignore', 'inherit'],
    shell: platform === 'win32',
  })
}

/** Runs in a copy of the manifest, so that an install that is broken off leaves nothing that looks whole. */
function inCopy(name: Name, work: (copy: string) => void): void {
  const copy = join(root, '.runtimes', `install-${name}.${pid}`)
  mkdirSync(copy, { recursive: true })
  try {
    for (const file of files)
      if (existsSync(join(folderOf(name), file))) copyFileSync(join(folderOf(name), file), join(copy, file))
    work(copy)
  } finally {
    rmSync(copy, { recursive: true, force: true })
  }
}

/** Installs what is missing or has changed. Two processes may do so at once: the first to finish wins. */
function install(name: Name): void {
  const modules = modulesOf(name)
  const stamp = join(modules, '.installed')
  const hash = hashOf(name)
  const isInstalled = (): boolean => existsSync(stamp) && readFileSync(stamp, 'utf8') === hash
  if (isInstalled()) return
  console.log(`Installing scripts/install/${name}/package.json into ${places[name]}/node_modules (once)`)
  inCopy(name, (copy) => {
    npm(copy, 'ci')
    writeFileSync(join(copy, 'node_modules/.installed'), hash)
    if (isInstalled()) return
    rmSync(modules, { recursive: true, force: true })
    try {
      renameSync(join(copy, 'node_modules'), modules)
    } catch (error) {
      if (!isInstalled()) throw error
    }
  })
}

/** Writes the lock without the addresses of the registry that served the packages. */
function lock(name: Name): void {
  inCopy(name, (copy) => {
    npm(copy, 'install', '--package-lock-only', '--omit-lockfile-registry-resolved')
    copyFileSync(join(copy, 'package-lock.json'), join(folderOf(name), 'package-lock.json'))
  })
}

const given = process.argv.slice(2)
const end = given.includes('--') ? given.indexOf('--') : given.length
const [program, ...args] = given.slice(end + 1)
const words = given.slice(0, end).filter((word) => word !== '--lock')
const names = words.includes('all') ? Object.keys(places).filter(isName) : words.filter(isName)
if (names.length === 0) {
  console.error(`node scripts/install.ts <${[...Object.keys(places), 'all'].join('|')}> [-- command]`)
  process.exit(2)
}
for (const name of names) {
  if (given.includes('--lock')) lock(name)
  else install(name)
}
if (program !== undefined) {
  const paths = [...names.map((name) => join(modulesOf(name), '.bin')), env['PATH'] ?? '']
  const { status } = spawnSync(program, args, {
    stdio: 'inherit',
    env: { ...env, PATH: paths.join(delimiter) },
    shell: platform === 'win32',
  })
  process.exitCode = status ?? 1
}
