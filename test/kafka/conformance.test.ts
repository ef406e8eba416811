import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { programCommand, type ServerRuntime } from '../runtimes/targets.ts'
import { ofFile } from '../of-file.ts'
import { startBrokers } from './brokers.ts'
import { conformanceOn, type Outcome } from './conformance.ts'

const brokers = ofFile(() => startBrokers())

/** The names of the checks need no brokers. */
const names = conformanceOn({ brokers: [], prefix: '' }).map(({ name }) => name)

describe('kafkaInbox is an inbox whose messages another system keeps', () => {
  test.concurrent.each<ServerRuntime>(['node24', 'bun', 'deno'])(
    '%s: all of this',
    { timeout: 180_000 },
    async (runtime) => {
      const outcomes = await outcomesOn(runtime)
      expect(outcomes).toEqual(names.map((name) => [name]))
    },
  )
})

/** What each check found inside a runtime. Rejects when the process does not end by itself after the last one. */
async function outcomesOn(runtime: ServerRuntime): Promise<readonly Outcome[]> {
  const settings = JSON.stringify({ brokers: brokers.addresses, prefix: runtime })
  const { command, args, env } = programCommand(runtime, join(import.meta.dirname, 'conformance.ts'), {
    SETTINGS: settings,
  })
  const printed = await new Promise<string>((resolve, reject) => {
    const options = { env: { ...process.env, ...env }, timeout: 150_000 }
    execFile(command, args, options, (error, stdout, stderr) => {
      if (error === null) resolve(stdout)
      else reject(new Error(`${runtime} ended with ${error.message}\n${stdout}\n${stderr}`))
    })
  })
  return printed
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
}
