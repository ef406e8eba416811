import type { ViteUserConfig } from 'vitest/config'
import base, { patience, replacing, units } from '../vitest.config.ts'

/** The tests of code that runs anywhere, for runtimes other than Node. */
const config: ViteUserConfig = {
  ...base,
  test: { include: [...units, replacing], testTimeout: 180_000, expect: patience, reporters: ['json'] },
}

export default config
