import type { ViteUserConfig } from 'vitest/config'
import { formVariable } from '../form.ts'
import base, { patience, setup } from '../vitest.config.ts'

/** `npm run test:faults`, the long form of every test that has one: one file at a time, because the files measure, and each takes the time that it needs. */
const config: ViteUserConfig = {
  ...base,
  test: {
    include: ['test/{faults,fuzz,inbox,kafka,postgres,vehicles,when}/**/*.test.ts'],
    env: { [formVariable]: 'long' },
    fileParallelism: false,
    testTimeout: 3_600_000,
    hookTimeout: 600_000,
    expect: patience,
    setupFiles: [setup],
    disableConsoleIntercept: true,
  },
}

export default config
