import { execFile, spawnSync } from 'node:child_process'
import { cpSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import * as esbuild from 'esbuild'
import * as rolldown from 'rolldown'
import { expect, inject, test } from 'vitest'
import { runtimePath } from '../../scripts/runtimes.ts'
import { spawnTarget, type TargetCommand } from '../conformance/spawn.ts'
import { form, inForm } from '../form.ts'
import { workerCommand } from '../runtimes/targets.ts'
import { npm } from './packed.ts'
import { newFolder } from '../folder.ts'

type Format = 'esm' | 'cjs'

/** Each makes one file of a program in the consumer's folder, with its default settings for Node, or for the web. */
const bundlers = {
  esbuild: (entry, file, format, platform) =>
    esbuild.build({ entryPoints: [entry], outfile: file, bundle: true, format, platform, logLevel: 'error' }),
  rolldown: (input, file, format, platform) =>
    rolldown.build({ input, platform, output: { file, format, codeSplitting: false }, logLevel: 'warn' }),
  webpack: (entry, file, format, platform) =>
    promisify(execFile)(process.execPath, ['webpack.js', entry, file, platform === 'browser' ? 'edge' : format], {
      cwd: dirname(entry),
    }),
} satisfies Record<
  string,
  (entry: string, file: string, format: Format, platform: 'node' | 'browser') => Promise<unknown>
>
type Bundler = keyof typeof bundlers

/** The path of what a bundler made of a program of the consumer. */
async function bundled(
  bundler: Bundler,
  program: string,
  format: Format,
  platform: 'node' | 'browser',
): Promise<string> {
  const file = join(inject('consumer'), `bundles/${bundler}-${program}.${format === 'esm' ? 'mjs' : 'cjs'}`)
  await bundlers[bundler](join(inject('consumer'), `${program}.js`), file, format, platform)
  return file
}

function run(file: string, ...args: readonly string[]): unknown {
  const { stdout, stderr } = spawnSync(runtimePath('node24'), [file, ...args], { cwd: tmpdir(), encoding: 'utf8' })
  return stdout === '' ? stderr : JSON.parse(stdout.trim().split('\n').at(-1) ?? '')
}

const received = {
  statuses: [200, 200, 200, 403],
  handled: ['service', 'vehicle_maker', 'event_collector'].map((name) => `${name} 0FLEETV14T0000004 81.5`),
}

const forNode: readonly (readonly [Bundler, Format])[] = inForm({
  real: [['esbuild', 'esm']],
  full: [
    ['esbuild', 'esm'],
    ['esbuild', 'cjs'],
    ['rolldown', 'esm'],
    ['rolldown', 'cjs'],
    ['webpack', 'esm'],
    ['webpack', 'cjs'],
  ],
})

test.each(forNode)(
  'what %s makes of every entry of the installed package, as %s for Node, receives messages into a file',
  async (bundler, format) => {
    expect(run(await bundled(bundler, 'bundled', format, 'node'))).toEqual({ ...received, entries: 10 })
  },
)

test.each(['esm', 'cjs'] as const)(
  'a %s bundle without the file of the thread says so when the inbox shall be in a thread',
  async (format) => {
    expect(run(await bundled('esbuild', 'bundled', format, 'node'), 'thread')).toEqual({ code: 'inbox_unsupported' })
  },
)

test.each(inForm<readonly Bundler[]>({ real: ['webpack'], full: ['esbuild', 'rolldown', 'webpack'] }))(
  'what %s makes of a Worker receives messages without a global Buffer and without nodejs_compat',
  async (bundler) => {
    const bundle = async (): Promise<{ readonly code: string }> => ({
      code: readFileSync(await bundled(bundler, 'worker', 'esm', 'browser'), 'utf8'),
    })
    const options = { bundle, compatibilityDate: '2025-01-01', resolveFrom: inject('consumer') }
    await using target = await spawnTarget(await workerCommand('', options))
    expect(await (await fetch(target.url)).json()).toEqual(received)
  },
)

test.skipIf(form === 'real')(
  'what Turbopack makes of the installed package receives messages in a route on Node, into a file, and in an edge route',
  { timeout: 300_000 },
  async () => {
    const project = newFolder('next')
    cpSync(fileURLToPath(new URL('next', import.meta.url)), project, { recursive: true })
    cpSync(join(inject('consumer'), 'post.js'), join(project, 'post.js'))
    writeFileSync(join(project, 'package.json'), '{"private":true}')
    const packages = [inject('tarball'), 'hono@4.13.19', 'next@16.4.6', 'react@19.3.1', 'react-dom@19.3.1']
    npm(project, 'install', '--no-package-lock', ...packages)
    const env = { NEXT_TELEMETRY_DISABLED: '1' }
    const next = (...args: readonly string[]): TargetCommand => ({
      runtime: 'next',
      command: process.execPath,
      args: ['node_modules/next/dist/bin/next', ...args],
      cwd: project,
      env,
    })
    const build = next('build')
    await promisify(execFile)(build.command, build.args, { cwd: project, env: { ...process.env, ...env } })
    await using target = await spawnTarget(next('start', '--port', '0', '--hostname', '127.0.0.1'))
    for (const route of ['node', 'edge']) expect(await (await fetch(`${target.url}/${route}`)).json()).toEqual(received)
  },
)
