import type { ViteUserConfig } from 'vitest/config'
import base from '../vitest.config.ts'

/** The tests of what runs anywhere, to be run by other runtimes than Node: all that do without a server of Node's. */
const config: ViteUserConfig = {
  ...base,
  test: {
    testTimeout: 60_000,
    include: [
      ...['wire', 'events', 'http', 'dispatch', 'client', 'sandbox', 'testing'].map(
        (folder) => `test/${folder}/**/*.test.ts`,
      ),
      'test/inbox/sqlite*.test.ts',
    ],
    exclude: ['test/http/sockets.test.ts', 'test/client/runtimes.test.ts', 'test/sandbox/receiver.test.ts'],
    reporters: ['json'],
  },
}

export default config
