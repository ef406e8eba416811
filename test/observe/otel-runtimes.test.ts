import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { programCommand, servers } from '../runtimes/targets.ts'

const program = fileURLToPath(new URL('programs/otel.ts', import.meta.url))

test.concurrent.each(servers)('the SDK gets the same spans and metrics on %s', async (runtime) => {
  const { command, args } = programCommand(runtime, program)
  const { stdout } = await promisify(execFile)(command, [...args], { timeout: 120_000 })
  const attempt = { name: 'process data', isConsumer: true, isRoot: true, isLinked: true, error: null }
  expect(JSON.parse(stdout)).toEqual({
    attempts: [attempt, attempt, { ...attempt, error: 'RangeError' }],
    children: [1, 1, 1],
    // One for each topic, for handled and failed, and for the topic that came.
    metrics: { 'fleethook.messages.received': 7, 'messaging.process.duration': 2, 'fleethook.message.lag': 1 },
  })
})
