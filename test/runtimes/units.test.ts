import { execFile } from 'node:child_process'
import { readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { runtimePath } from '../../scripts/runtimes.ts'
import { formVariable } from '../form.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const vitest = 'node_modules/vitest/vitest.mjs'
const config = 'test/runtimes/units.config.ts'

interface Report {
  readonly numPassedTests: number
  readonly numTotalTests: number
  readonly testResults: readonly {
    readonly name: string
    readonly message: string
    readonly assertionResults: readonly {
      readonly status: string
      readonly fullName: string
      readonly failureMessages: readonly string[]
    }[]
  }[]
}

test.each([
  ['bun', ['--bun', vitest, 'run', '--pool=threads']],
  ['deno', ['run', '--allow-all', vitest, 'run']],
] as const)('the unit tests pass inside %s', { timeout: 900_000 }, async (runtime, args) => {
  const file = join(tmpdir(), `fleethook-units-${runtime}-${process.pid}.json`)
  const output = await run(runtimePath(runtime), [...args, `--config=${config}`, `--outputFile.json=${file}`])
  const text = await readFile(file, 'utf8').catch(() => {
    throw new Error(`vitest wrote no report inside ${runtime}:\n${output}`)
  })
  await rm(file)
  const { numPassedTests, numTotalTests, testResults }: Report = JSON.parse(text)
  const failures = testResults.flatMap(({ name, message, assertionResults }) => [
    ...(message === '' ? [] : [`${name}: ${message}`]),
    ...assertionResults
      .filter(({ status }) => status !== 'passed')
      .map(({ fullName, failureMessages }) => `${name}: ${fullName}: ${failureMessages.join('\n')}`),
  ])
  expect(failures).toEqual([])
  expect(numPassedTests).toBe(numTotalTests)
  expect(numPassedTests).toBeGreaterThan(1_000)
})

function run(command: string, args: readonly string[]): Promise<string> {
  return new Promise((resolve) => {
    // Random cases differ by their number, not by the runtime: the full amount runs on Node.
    const env = { ...process.env, [formVariable]: 'short' }
    execFile(command, args, { cwd: root, env, maxBuffer: 1 << 28 }, (_error, stdout, stderr) =>
      resolve(stdout + stderr),
    )
  })
}
