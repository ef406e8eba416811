import type { ViteUserConfig } from 'vitest/config'
import { formVariable } from '../form.ts'
import base, { patience, setup } from '../vitest.config.ts'

/** `npm run test:kafka`: tests against real brokers, one file at a time, because each starts brokers of its own. */
const config: ViteUserConfig = {
  ...base,
  test: {
    include: ['test/kafka/**/*.test.ts'],
    // For minutes under load: in the long form only.
    exclude: ['test/kafka/steady.test.ts'],
    env: { ...base.test?.env, [formVariable]: 'full' },
    fileParallelism: false,
    testTimeout: 180_000,
    hookTimeout: 120_000,
    expect: patience,
    setupFiles: [setup],
    reporters: ['default'],
    silent: 'passed-only',
  },
}

export default config
