import { accessSync, constants, statfsSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { fileURLToPath } from 'node:url'
import type { TestProjectConfiguration, ViteUserConfig } from 'vitest/config'
import { type Form, formVariable } from './form.ts'

const root = fileURLToPath(new URL('..', import.meta.url))
const source = (path: string): string => fileURLToPath(new URL(`../${path}`, import.meta.url))

/** Tests of code that runs anywhere, without a server of Node. `test/runtimes/units.test.ts` runs them inside Bun and Deno. */
export const units: readonly string[] = [
  'test/{wire,events,dispatch,testing,vehicles,when}/*.test.ts',
  'test/client/!(runtimes).test.ts',
  'test/http/!(sockets|comparisons).test.ts',
  'test/sandbox/!(receiver).test.ts',
  'test/inbox/sqlite*.test.ts',
]

/** Replaces a module of the package, so it cannot share a worker with other files. */
export const replacing = 'test/http/comparisons.test.ts'

/** Tests that leave nothing behind in their own process: most of them start other processes or servers. */
const processes: readonly string[] = [
  'test/{branch,cli,conformance,docs,faults,fleet,house,inspector,openapi,operator,runtimes,start,templates,workers}/**/*.test.ts',
  'test/{client/runtimes,http/sockets,mounts/{mounts,own-forms},node/{limits,signals},sandbox/receiver}.test.ts',
  'test/observe/!(otel).test.ts',
  'test/inbox/!(sqlite*|group-commit|meanwhile).test.ts',
]

/** Tests in real databases. */
const databases = ['test/{postgres,once}/**/*.test.ts']

/** Tests that need the packed tarball. The others run on the sources. */
const onThePackage = ['test/package/**/*.test.ts']

/** Kills, disks, every version of a runtime, what each template does, and programs under commands. */
const machines: readonly string[] = [
  'test/faults/{deploy,disk,http,kills,process,secret}/**/*.test.ts',
  'test/{runtimes,start,templates}/**/*.test.ts',
  'test/{client/runtimes,observe/otel-runtimes,fuzz/socket}.test.ts',
  // Programs that run for a while, each with commands or kills around it.
  'test/cli/{conform,run,inspect,sandbox,send,service,usage,doctor/*}.test.ts',
  'test/operator/{large-messages,missing,operator,vehicles}.test.ts',
  'test/observe/tail{,-to}.test.ts',
  'test/workers/{durable-object,episodes,facts-rows,time,vehicles}.test.ts',
  // A repository with a release.
  'test/house/release.test.ts',
  'test/inbox/sqlite-{moving,processes}.test.ts',
  'test/branch/kills.test.ts',
  // Each block of each page is a program.
  'test/docs/blocks.test.ts',
]

/** `npm test` runs these on one version of Node, and `npm run test:real` on the others. */
const onVersions = ['test/conformance/**/*.test.ts']

/** The full form alone runs these, because others hold their sentences. */
const onlyFull: readonly string[] = [
  // The unit tests inside Bun and Deno. The conformance suite runs there.
  'test/runtimes/units.test.ts',
  // Restarts behind proxies. `test/runtimes/load.test.ts` stops under load, and `test/node/signals.test.ts` at each point.
  'test/faults/deploy/restarts.test.ts',
  // The same faces as `test/fuzz/http.test.ts` and `test/wire`, for longer.
  'test/fuzz/campaign.test.ts',
  // The model of episodes once for each error.
  'test/faults/episodes/**/*.test.ts',
]

/** What `npm test` leaves to `npm run test:real`. */
const notInShort = [...onThePackage, ...databases, ...machines, ...onlyFull]

/** Real brokers, a real browser, and a registry. `npm run test:kafka`, `test:page` and `test:release` run them. */
const elsewhere = ['test/kafka/**', 'test/inspector/page/**', 'test/docs/site/**', 'test/release/**']

/** `expect.poll` gives up after this time, in milliseconds, where a test names none. Only one that hangs takes it, also on a slow machine. */
export const patience = { poll: { timeout: 60_000 } } as const

/**
 * A test gives up after this time, in milliseconds, where it names none. Only one that hangs takes it, also beside much other work, and on a disk
 * that needs half a second for each sync: a test that starts ten commands waits for it a hundred times.
 */
export const longestMs = 180_000

/**
 * Where the short form keeps its temporary files: in memory where there is room, because a sync of a disk takes milliseconds and most tests sync. What
 * a disk does is for the real form.
 */
function folderInMemory(): string {
  const folder = '/dev/shm'
  try {
    accessSync(folder, constants.W_OK)
    const { bavail, bsize } = statfsSync(folder)
    return bavail * bsize > 2 ** 31 ? folder : tmpdir()
  } catch {
    return tmpdir()
  }
}

/** Ends the processes that a test file leaves. */
export const setup: string = source('test/setup.ts')

/** What every form has in common. */
export function configFor(form: Form): ViteUserConfig {
  const isReal = form === 'real'
  const excluded = ['**/node_modules/**', ...(form === 'short' ? notInShort : isReal ? onlyFull : []), ...elsewhere]
  const temporary: { readonly env?: Readonly<Record<string, string>> } =
    form === 'short' ? { env: { TMPDIR: folderInMemory() } } : {}
  return {
    root,
    resolve: {
      alias: [
        // Vite reads conditions of `imports` in two ways. Node takes this one.
        { find: '#timing-safe-equal', replacement: 'timing-safe-equal' },
        ...(form === 'short' || isReal ? [{ find: /^fast-check$/, replacement: source('test/same-cases.ts') }] : []),
        { find: /^fleethook$/, replacement: source('src/index.ts') },
        {
          find: /^fleethook\/(normalize|schemas|branch|client|extend|once|inspector|metrics|operator|otel|sandbox|testing|when)$/,
          replacement: source('src/$1.ts'),
        },
        { find: /^fleethook\/(forward|node|bun|deno|workers|inbox\/[\w-]+)$/, replacement: source('adapters/$1.ts') },
      ],
    },
    test: {
      env: {
        [formVariable]: form,
        // Node strips types and compiles once for all the processes that the tests start.
        NODE_COMPILE_CACHE: source('node_modules/.cache/fleethook-tests'),
      },
      testTimeout: longestMs,
      hookTimeout: longestMs,
      expect: patience,
      setupFiles: [setup],
      reporters: ['dot'],
      silent: 'passed-only',
      // Many tests wait for timers and other processes, so there are more workers than cores. The full form measures.
      maxWorkers: form === 'short' ? availableParallelism() * 4 : isReal ? availableParallelism() * 2 : '100%',
      projects: [
        // Vitest takes the projects in the order of their names. The files of the first three wait most, so they are early.
        {
          extends: true,
          // Few cases of a database would say little.
          test: {
            name: 'databases',
            include: databases,
            exclude: excluded,
            testTimeout: 300_000,
            ...(isReal && { env: { [formVariable]: 'full' } }),
          },
        },
        {
          extends: true,
          test: {
            name: 'package',
            include: onThePackage,
            exclude: excluded,
            globalSetup: ['test/package/packed.ts'],
          },
        },
        // These files and the units share the modules of their worker: loading them for each file would take longer than the tests.
        {
          extends: true,
          test: {
            name: 'processes',
            include: isReal ? [...machines, ...onVersions] : [...processes],
            exclude: excluded,
            isolate: false,
            ...temporary,
          },
        },
        ...(isReal ? [] : onSources(excluded, temporary)),
      ],
    },
  }
}

/** The tests that need nothing but this process. */
function onSources(
  excluded: readonly string[],
  more: { readonly env?: Readonly<Record<string, string>> },
): readonly TestProjectConfiguration[] {
  return [
    {
      extends: true,
      test: {
        name: 'sources',
        include: ['test/**/*.test.ts'],
        exclude: [...onThePackage, ...databases, ...processes, ...units, ...excluded],
        ...more,
      },
    },
    {
      extends: true,
      test: { name: 'units', include: [...units], exclude: [...excluded], isolate: false, ...more },
    },
  ]
}

/** `npm test`. */
const config: ViteUserConfig = configFor('short')
export default config
