import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build, type Plugin } from 'esbuild'
import { receiverConformance } from '../../adapters/cli/conform/receiver-conformance.ts'
import { afterAll, beforeAll, describe, inject, test } from 'vitest'
import { type Runtime, runtimePath } from '../../scripts/runtimes.ts'
import { createHandled } from '../conformance/handled.ts'
import { spawnTarget, type Target } from '../conformance/spawn.ts'
import { secret } from '../conformance/target.ts'
import { inForm } from '../form.ts'

/** The program of the conformance suite, as a user who installed the package would write it. */
const installed: Plugin = {
  name: 'installed',
  setup({ onResolve }) {
    onResolve({ filter: /\/src\/index\.ts$/ }, () => ({ path: 'fleethook', external: true }))
    onResolve({ filter: /\/adapters\/node\.ts$/ }, () => ({ path: 'fleethook/node', external: true }))
    onResolve({ filter: /^hono/ }, ({ path }) => ({ path, external: true }))
  },
}

const runtimes = inForm<readonly Runtime[]>({ real: ['node22.13'], full: ['node22.13', 'node24'] })

describe.each(runtimes)('the conformance suite against the installed package on %s', (runtime) => {
  let target: Target
  beforeAll(async () => {
    const program = join(inject('consumer'), `conformance-${runtime}.js`)
    await build({
      entryPoints: [fileURLToPath(new URL('../conformance/node.ts', import.meta.url))],
      outfile: program,
      bundle: true,
      format: 'esm',
      platform: 'node',
      target: 'node22.13',
      plugins: [installed],
      logLevel: 'error',
    })
    target = await spawnTarget({ runtime, command: runtimePath(runtime), args: [program] })
  })
  afterAll(() => target.stop())

  const names = receiverConformance({ url: 'http://not.yet', secret, events: async () => [] }).map(({ name }) => name)
  const events = createHandled(() => target.url)
  let checks: ReturnType<typeof receiverConformance> | undefined
  test.each(names)('%s', async (name) => {
    // Made once, because its bodies are compressed.
    checks ??= receiverConformance({ url: target.url, secret, events })
    await checks.find((check) => check.name === name)?.run()
  })
})
