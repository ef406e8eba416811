import type { ViteUserConfig } from 'vitest/config'
import { formVariable } from '../../form.ts'
import base, { patience } from '../../vitest.config.ts'

/**
 * `npm run test:page`: the inspector's page and the built site in a real Chromium. With `FLEETHOOK_TEST_FORM=full`, axe reads every
 * page of the site, and with `long` in dark, too.
 */
const config: ViteUserConfig = {
  ...base,
  test: {
    include: ['test/{inspector/page,docs/site}/**/*.test.ts'],
    env: { ...base.test?.env, [formVariable]: process.env[formVariable] ?? 'real' },
    fileParallelism: false,
    testTimeout: 180_000,
    hookTimeout: 180_000,
    expect: patience,
    reporters: ['default'],
    silent: 'passed-only',
  },
}

export default config
