import type { ViteUserConfig } from 'vitest/config'
import { formVariable } from '../form.ts'
import base, { patience, setup } from '../vitest.config.ts'

/** `npm run test:release`: what a new user does, with the package from a registry. */
const config: ViteUserConfig = {
  ...base,
  test: {
    include: ['test/release/**/*.test.ts'],
    env: { [formVariable]: 'full' },
    globalSetup: ['test/release/published.ts'],
    maxConcurrency: 3,
    testTimeout: 300_000,
    hookTimeout: 60_000,
    expect: patience,
    setupFiles: [setup],
    reporters: ['default'],
    silent: 'passed-only',
  },
}

export default config
