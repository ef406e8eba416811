import { execFileSync } from 'node:child_process'
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { TestProject } from 'vitest/node'
import { formVariable } from '../form.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** The tarball that `npm pack` made of this working tree after a fresh build. */
    readonly tarball: string
    /** A user's project: the tarball, its peers, compilers and webpack are installed. `npm run test:real` has the newest compiler and the oldest. */
    readonly consumer: string
  }
}

const root = fileURLToPath(new URL('../..', import.meta.url))

/** Builds and packs a copy of the working tree (another build may run in this one), and installs the tarball in an empty project. */
export default function setup(project: TestProject): () => void {
  const scratch = realpathSync(mkdtempSync(join(tmpdir(), 'fleethook-package-')))
  const tarball = pack(join(scratch, 'copy'))
  const consumer = join(scratch, 'consumer')
  install(
    consumer,
    tarball,
    project.config.env[formVariable] === 'real' ? ['5.4.5', '7.0.2'] : ['5.4.5', '5.9.3', '6.0.3', '7.0.2'],
  )
  project.provide('tarball', tarball)
  project.provide('consumer', consumer)
  return () => rmSync(scratch, { recursive: true, force: true })
}

/** Builds and packs a copy of the working tree, and returns the path of the tarball. */
export function pack(copy: string): string {
  const left = new Set(['.git', '.runtimes', 'dist', 'node_modules'])
  mkdirSync(copy)
  for (const name of readdirSync(root).filter((entry) => !left.has(entry))) {
    cpSync(join(root, name), join(copy, name), { recursive: true, filter: (path) => basename(path) !== 'node_modules' })
  }
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'))
  npm(copy, 'pack')
  const tarball = readdirSync(copy).find((name) => name.endsWith('.tgz'))
  if (tarball === undefined) throw new Error('npm pack made no tarball.')
  return join(copy, tarball)
}

function install(consumer: string, tarball: string, versions: readonly string[]): void {
  cpSync(fileURLToPath(new URL('consumer', import.meta.url)), consumer, { recursive: true })
  const { devDependencies }: { devDependencies: Record<string, string> } = JSON.parse(
    readFileSync(join(root, 'package.json'), 'utf8'),
  )
  const peers = ['hono', 'zod', '@opentelemetry/api', '@types/node'].map((name) => `${name}@${devDependencies[name]}`)
  const compilers = versions.map((version) => `typescript-${version.slice(0, 3)}@npm:typescript@${version}`)
  writeFileSync(join(consumer, 'package.json'), JSON.stringify({ private: true, type: 'module' }))
  npm(consumer, 'install', '--no-package-lock', tarball, ...peers, ...compilers, 'webpack@5.112.2')
}

export function npm(cwd: string, ...args: readonly string[]): void {
  execFileSync('npm', [...args, '--no-audit', '--no-fund', '--prefer-offline', '--loglevel=error'], {
    cwd,
    stdio: ['ignore', 'ignore', 'inherit'],
    shell: process.platform === 'win32',
  })
}
