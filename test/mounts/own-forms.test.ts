import { fileURLToPath } from 'node:url'
import { describe, test } from 'vitest'
import { runtimePath } from '../../scripts/runtimes.ts'
import { spawnTarget } from '../conformance/spawn.ts'
import { conforms } from './checks.ts'

const program = fileURLToPath(new URL('programs/own-form.ts', import.meta.url))

describe('export default { fetch: receiver.fetch }', { timeout: 180_000 }, () => {
  test.each([
    ['bun', ['run', program]],
    ['deno', ['serve', '--allow-all', '--host', '127.0.0.1', '--port', '0', program]],
  ] as const)('run by %s as it is, passes the whole suite', async (runtime, args) => {
    await using target = await spawnTarget({ runtime, command: runtimePath(runtime), args, env: { NO_COLOR: '1' } })
    await conforms(target.url, async () => (await fetch(`${target.url}/events`)).json())
  })
})
