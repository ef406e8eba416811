import { fileURLToPath } from 'node:url'
import type { ViteUserConfig } from 'vitest/config'

const root = fileURLToPath(new URL('..', import.meta.url))
const source = (path: string): string => fileURLToPath(new URL(`../${path}`, import.meta.url))

/** Tests that need the packed tarball; the others run on the sources. */
const onThePackage = ['test/package/**/*.test.ts', 'test/templates/**/*.test.ts']

const config: ViteUserConfig = {
  root,
  resolve: {
    alias: [
      { find: /^fleethook$/, replacement: source('src/index.ts') },
      { find: /^fleethook\/(normalize|client|operator|sandbox|testing)$/, replacement: source('src/$1.ts') },
      { find: /^fleethook\/(node|bun|deno|workers|inbox\/[\w-]+)$/, replacement: source('adapters/$1.ts') },
    ],
  },
  test: {
    testTimeout: 20_000,
    hookTimeout: 60_000,
    // Many tests wait for processes: one core to spare, which is the default, is one too many of two.
    maxWorkers: '100%',
    projects: [
      { extends: true, test: { name: 'sources', include: ['test/**/*.test.ts'], exclude: onThePackage } },
      {
        extends: true,
        test: { name: 'package', include: onThePackage, globalSetup: ['test/package/packed.ts'], testTimeout: 120_000 },
      },
    ],
  },
}

export default config
