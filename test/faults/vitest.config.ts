import type { ViteUserConfig } from 'vitest/config'
import base from '../vitest.config.ts'

/** The long form of the faults: one file at a time, since they measure, and each as long as it takes. */
const config: ViteUserConfig = {
  ...base,
  test: {
    include: ['test/faults/**/*.test.ts', 'test/fuzz/**/*.test.ts'],
    env: { FLEETHOOK_FAULTS: 'long' },
    fileParallelism: false,
    testTimeout: 3_600_000,
    hookTimeout: 600_000,
    disableConsoleIntercept: true,
  },
}

export default config
