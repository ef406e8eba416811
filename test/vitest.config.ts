import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import type { ViteUserConfig } from 'vitest/config'
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

/** Tests that leave nothing behind in their own process: most of them start other processes. */
const processes: readonly string[] = [
  'test/{cli,conformance,docs,faults,fleet,house,operator,runtimes,start,templates,workers}/**/*.test.ts',
  'test/client/runtimes.test.ts',
  'test/inbox/kafka-*.test.ts',
]

/** Tests that need the packed tarball. The others run on the sources. */
const onThePackage = ['test/package/**/*.test.ts']

/**
 * Files that the short form leaves out altogether, because others hold their sentences there. The others take less with `inForm`
 * (`test/form.ts`).
 */
const notInShort = [
  // The unit tests inside Bun and Deno. The conformance suite runs there.
  'test/runtimes/units.test.ts',
  // Kills under load, with rules. `test/when/restart.test.ts` and `test/when/time-restart.test.ts` crash at each point.
  'test/faults/{process,workers}/{edges,time}.test.ts',
  // Restarts behind proxies. `test/runtimes/load.test.ts` stops under load, and `test/node/signals.test.ts` at each point.
  'test/faults/deploy/restarts.test.ts',
  // The same faces as `test/fuzz/http.test.ts` and `test/wire`, for longer.
  'test/fuzz/campaign.test.ts',
]

/** Real brokers, a real browser, and a registry. `npm run test:kafka`, `test:page` and `test:release` run them. */
const elsewhere = ['test/kafka/**', 'test/inspector/page/**', 'test/docs/site/**', 'test/release/**']

/** `expect.poll` gives up after this time, in milliseconds, where a test names none. Vitest's second is too short beside other tests. */
export const patience = { poll: { timeout: 10_000 } } as const

/** Ends the processes that a test file leaves. */
export const setup: string = source('test/setup.ts')

/** What every form has in common. */
export function configFor(form: Form): ViteUserConfig {
  const leftOut = form === 'short' ? notInShort : []
  return {
    root,
    resolve: {
      alias: [
        // Vite reads conditions of `imports` in two ways. Node takes this one.
        { find: '#timing-safe-equal', replacement: 'timing-safe-equal' },
        { find: /^fleethook$/, replacement: source('src/index.ts') },
        {
          find: /^fleethook\/(normalize|schemas|client|extend|once|inspector|metrics|operator|otel|sandbox|testing|when)$/,
          replacement: source('src/$1.ts'),
        },
        { find: /^fleethook\/(node|bun|deno|workers|inbox\/[\w-]+)$/, replacement: source('adapters/$1.ts') },
      ],
    },
    test: {
      env: {
        [formVariable]: form,
        // Node strips types and compiles once for all the processes that the tests start.
        NODE_COMPILE_CACHE: source('node_modules/.cache/fleethook-tests'),
      },
      // Only a test that hangs takes this long, also beside much other work.
      testTimeout: 60_000,
      hookTimeout: 60_000,
      expect: patience,
      setupFiles: [setup],
      reporters: ['dot'],
      silent: 'passed-only',
      // Many tests wait for timers and other processes, so the short form takes more workers than cores. The others measure.
      maxWorkers: form === 'short' ? availableParallelism() * 2 : '100%',
      projects: [
        // Vitest takes the projects in the order of their names. The files of the first two wait most, so they are early.
        {
          extends: true,
          test: {
            name: 'package',
            include: onThePackage,
            globalSetup: ['test/package/packed.ts'],
            testTimeout: 120_000,
          },
        },
        // These files and the units share the modules of their worker: loading them for each file would take longer than the tests.
        {
          extends: true,
          test: { name: 'processes', include: [...processes], exclude: [...leftOut, ...elsewhere], isolate: false },
        },
        {
          extends: true,
          test: {
            name: 'sources',
            include: ['test/**/*.test.ts'],
            exclude: [...onThePackage, ...processes, ...leftOut, ...units, ...elsewhere],
          },
        },
        { extends: true, test: { name: 'units', include: [...units], isolate: false } },
      ],
    },
  }
}

/** `npm test`. */
const config: ViteUserConfig = configFor('short')
export default config
