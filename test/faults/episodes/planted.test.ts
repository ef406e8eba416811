import { execFile } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { planted } from './planted.ts'

const root = join(import.meta.dirname, '../../..')
const vitest = join(dirname(createRequire(import.meta.url).resolve('vitest/package.json')), 'vitest.mjs')
const folder = mkdtempSync(join(tmpdir(), 'fleethook-planted-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))
const report = join(folder, 'report.json')
const args = [
  'run',
  '--config',
  'test/faults/episodes/planted.config.ts',
  '--reporter',
  'json',
  `--outputFile=${report}`,
  'test/when/episodes-model.test.ts',
]

interface Report {
  readonly numFailedTests: number
  readonly numTotalTests: number
}

/** What the model says of the code with this error. */
async function modelWith(error: string): Promise<Report> {
  const env = { ...process.env, PLANTED: error }
  const output = await new Promise<string>((resolve) => {
    execFile(process.execPath, [vitest, ...args], { cwd: root, env, maxBuffer: 2 ** 28 }, (_, out, errors) =>
      resolve(`${out}\n${errors}`),
    )
  })
  if (!existsSync(report)) throw new Error(output)
  const found: Report = JSON.parse(readFileSync(report, 'utf8'))
  rmSync(report)
  return found
}

test('the model finds nine of ten errors that are planted in the code of episodes', { timeout: 3_600_000 }, async () => {
  const { numFailedTests, numTotalTests } = await modelWith('none')
  expect(numFailedTests).toBe(0)
  const missed: string[] = []
  for (const [n, { what }] of planted.entries()) {
    const found = await modelWith(String(n))
    // An error that keeps the tests from running is not found by the model.
    expect(found.numTotalTests).toBe(numTotalTests)
    console.log(`${found.numFailedTests} of ${numTotalTests} rows: ${what}`)
    if (found.numFailedTests === 0) missed.push(what)
  }
  expect(missed.length, missed.join('; ')).toBeLessThanOrEqual(planted.length / 10)
}) // prettier-ignore
