// Installs the JavaScript runtimes of the tests and benchmarks, and miniflare, which runs workerd, into `.runtimes/`. Git ignores it.
// They are not devDependencies: `npm ci` fails when a registry lacks a platform package of one of them.
// `runtimes/package-lock.json` pins them and what they need by hash; `npm install` adds what other platforms need. After a change of
// a version: node scripts/runtimes.ts --lock
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { copyFileSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { arch, platform } from 'node:process'
import { fileURLToPath } from 'node:url'

const runtimes = ['node22.13', 'node22', 'node24', 'node26', 'bun', 'deno', 'workerd'] as const

/** A runtime that {@link runtimePath} knows. */
export type Runtime = (typeof runtimes)[number]

const node = (version: string): string => `npm:node-${platform === 'win32' ? 'win' : platform}-${arch}@${version}`

const packages: Readonly<Record<Runtime, string>> = {
  // The oldest version in `engines`. Other platforms have no package of it.
  'node22.13': node(platform === 'linux' ? '22.13.1' : '22.14.0'),
  node22: node('22.23.3'),
  node24: node('24.21.0'),
  node26: node('26.10.0'),
  bun: '1.4.5',
  deno: '2.9.6',
  workerd: '1.20261117.1',
}

/** The local platform of the Wrangler that the Workers templates use. */
const miniflare = '5.20261117.0-beta'

/** What is installed. */
export const runtimePackages: Readonly<Record<string, string>> = { ...packages, miniflare }

// Install scripts put the programs themselves into `.bin`. A signal sent to a shim would not reach its program.
const manifest = JSON.stringify(
  { private: true, dependencies: runtimePackages, allowScripts: { bun: true, deno: true, workerd: true } },
  null,
  2,
)
const lockFile = fileURLToPath(new URL('runtimes/package-lock.json', import.meta.url))
const base = fileURLToPath(new URL('../.runtimes', import.meta.url))

const installed = `${base}/${createHash('sha256').update(manifest).update(readFileSync(lockFile)).digest('hex').slice(0, 12)}`

/** The path of the runtime's executable. Throws when `node scripts/runtimes.ts` has not run yet. `npm test` runs it first. */
export function runtimePath(runtime: Runtime): string {
  if (!existsSync(installed)) throw new Error('The runtimes are not installed. Run "node scripts/runtimes.ts".')
  const modules = `${installed}/node_modules`
  return runtime.startsWith('node') ? `${modules}/${runtime}/bin/node` : `${modules}/.bin/${runtime}`
}

/** The path of miniflare's module. */
export function miniflareModule(): string {
  return `${installed}/node_modules/miniflare/dist/src/index.js`
}

/** Keeps to the lock, and adds to it what is missing. */
function npmInstall(cwd: string, ...more: readonly string[]): void {
  execFileSync('npm', ['install', ...more, '--no-audit', '--no-fund', '--loglevel=error'], {
    cwd,
    stdio: ['ignore', 'ignore', 'inherit'],
    shell: platform === 'win32',
  })
}

/** Installs what is missing. Two processes may do so at once: each fills its own folder, and the first to finish wins. */
export function installRuntimes(): void {
  if (existsSync(installed)) return
  const own = `${installed}.${process.pid}`
  mkdirSync(own, { recursive: true })
  try {
    writeFileSync(`${own}/package.json`, manifest)
    copyFileSync(lockFile, `${own}/package-lock.json`)
    console.log(`Installing ${runtimes.join(', ')} into .runtimes/ (once)`)
    npmInstall(own)
    renameSync(own, installed)
  } catch (error) {
    if (!existsSync(installed)) throw error
  } finally {
    rmSync(own, { recursive: true, force: true })
  }
}

/** Replaces the lock by one without the addresses of the registry that served the packages. */
function writeLock(): void {
  const own = `${base}/lock.${process.pid}`
  mkdirSync(own, { recursive: true })
  try {
    writeFileSync(`${own}/package.json`, manifest)
    npmInstall(own, '--package-lock-only', '--omit-lockfile-registry-resolved')
    renameSync(`${own}/package-lock.json`, lockFile)
  } finally {
    rmSync(own, { recursive: true, force: true })
  }
}

if (import.meta.main) {
  if (process.argv.includes('--lock')) writeLock()
  else installRuntimes()
  if (process.argv.includes('--versions')) {
    for (const runtime of runtimes) {
      const version = execFileSync(runtimePath(runtime), ['--version'], { encoding: 'utf8' })
      console.log(runtime.padEnd(8), version.split('\n')[0])
    }
  }
}
