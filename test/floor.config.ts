import type { Alias } from 'vite'
import type { ViteUserConfig } from 'vitest/config'
import base, { longestMs, patience, setup } from './vitest.config.ts'

const given = base.resolve?.alias
const aliases: readonly Alias[] = Array.isArray(given) ? given : []

/** `npm run validate -- floor`: what uses Hono, with the oldest version that `peerDependencies` allows. */
const config: ViteUserConfig = {
  ...base,
  resolve: { alias: [{ find: /^hono(?=$|\/)/, replacement: 'hono-floor' }, ...aliases] },
  test: {
    include: ['test/{http,mounts,sandbox,operator}/*.test.ts', 'test/inspector/{copy,history}.test.ts'],
    // They start processes, which have the newest version.
    exclude: ['test/http/{sockets,comparisons}.test.ts', 'test/operator/{operator,vehicles,large-messages}.test.ts'],
    env: base.test?.env ?? {},
    testTimeout: longestMs,
    expect: patience,
    setupFiles: [setup],
    reporters: ['dot'],
    silent: 'passed-only',
  },
}

export default config
