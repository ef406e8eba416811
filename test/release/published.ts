import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { TestProject } from 'vitest/node'
import { spawnTarget } from '../conformance/spawn.ts'
import { npm, pack } from '../package/packed.ts'

declare module 'vitest' {
  interface ProvidedContext {
    /** A registry that has this working tree as `fleethook`, and everything else from the registry that npm has. */
    readonly registry: string
    /** npm's cache for the tests: what npm downloaded before is there, and what `npx` installed before is not. */
    readonly npmCache: string
  }
}

/** Starts the registry and publishes the packed package to it. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const scratch = realpathSync(mkdtempSync(join(tmpdir(), 'fleethook-release-')))
  const program = fileURLToPath(new URL('registry.ts', import.meta.url))
  const certificates = configured('cafile')
  const registry = await spawnTarget({
    runtime: 'registry',
    command: process.execPath,
    args: [program, scratch, configured('registry'), certificates === 'null' ? '' : certificates],
  })
  // npm publishes only with a token. This registry lets everybody publish.
  writeFileSync(join(scratch, '.npmrc'), `registry=${registry.url}/\n//${new URL(registry.url).host}/:_authToken=any\n`)
  const tarball = pack(join(scratch, 'copy'))
  npm(dirname(tarball), 'publish', tarball, '--ignore-scripts', '--userconfig', join(scratch, '.npmrc'))
  makeOlder(join(scratch, 'storage/fleethook/package.json'))

  const npmCache = join(scratch, 'npm-cache')
  mkdirSync(npmCache)
  symlinkSync(join(configured('cache'), '_cacache'), join(npmCache, '_cacache'))
  project.provide('registry', `${registry.url}/`)
  project.provide('npmCache', npmCache)
  return async () => {
    await registry.stop()
    rmSync(scratch, { recursive: true, force: true })
  }
}

/** Deno takes no version that is younger than a day. */
function makeOlder(path: string): void {
  const published: { time: Record<string, string> } = JSON.parse(readFileSync(path, 'utf8'))
  const time = Object.fromEntries(Object.keys(published.time).map((name) => [name, '2026-01-01T00:00:00.000Z']))
  writeFileSync(path, JSON.stringify({ ...published, time }))
}

const configured = (name: string): string =>
  execFileSync('npm', ['config', 'get', name], { encoding: 'utf8', shell: process.platform === 'win32' }).trim()
