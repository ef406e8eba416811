import { fileURLToPath } from 'node:url'
import type { ViteUserConfig } from 'vitest/config'

const root = fileURLToPath(new URL('..', import.meta.url))
const source = (path: string): string => fileURLToPath(new URL(`../${path}`, import.meta.url))

/** Tests import the public names; here those are the sources, in `test/package` they are the built package. */
const config: ViteUserConfig = {
  root,
  resolve: {
    alias: [
      { find: /^fleethook$/, replacement: source('src/index.ts') },
      { find: /^fleethook\/(normalize|testing)$/, replacement: source('src/$1.ts') },
      { find: /^fleethook\/(node|bun|deno|workers)$/, replacement: source('adapters/$1.ts') },
    ],
  },
  test: { include: ['test/**/*.test.ts'], testTimeout: 20_000, hookTimeout: 60_000 },
}

export default config
