import { execFile } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { availableParallelism, tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { planted } from './planted.ts'

const root = join(import.meta.dirname, '../../..')
const vitest = join(dirname(createRequire(import.meta.url).resolve('vitest/package.json')), 'vitest.mjs')
const folder = mkdtempSync(join(tmpdir(), 'fleethook-planted-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))
const config = 'test/faults/episodes/planted.config.ts'
const model = 'test/when/episodes-model.test.ts'
/** What these rows of the model find, the model finds. */
const rows = ['not: none', 'not: bursts', 'not: restarts, shuffled', 'not: clocks that are fast']

interface Report {
  readonly numPassedTests: number
  readonly numFailedTests: number
}

/** What the model says of the code with this error. It ends with the first row that finds it. */
async function modelWith(error: string): Promise<Report> {
  const report = join(folder, `${error}.json`)
  const only = ['--testNamePattern', rows.join('|'), '--bail', '1']
  const args = ['run', '--config', config, ...only, '--reporter', 'json', `--outputFile=${report}`, model]
  const env = { ...process.env, PLANTED: error }
  const output = await new Promise<string>((resolve) => {
    execFile(process.execPath, [vitest, ...args], { cwd: root, env, maxBuffer: 2 ** 28 }, (_, out, errors) =>
      resolve(`${out}\n${errors}`),
    )
  })
  if (!existsSync(report)) throw new Error(output)
  return JSON.parse(readFileSync(report, 'utf8'))
}

test(
  'the model finds nine of ten errors that are planted in the code of episodes',
  { timeout: 1_800_000 },
  async () => {
    const control = await modelWith('none')
    expect(control).toMatchObject({ numPassedTests: rows.length, numFailedTests: 0 })
    const missed: string[] = []
    const left = [...planted.entries()]
    const next = async (): Promise<void> => {
      for (let error = left.shift(); error !== undefined; error = left.shift()) {
        const [n, { what }] = error
        const found = await modelWith(String(n))
        const isFound = found.numFailedTests > 0
        console.log(`${isFound ? `found after ${found.numPassedTests} rows` : 'missed'}: ${what}`)
        if (isFound) continue
        // An error that keeps the tests from running is not found by the model.
        expect(found.numPassedTests).toBe(rows.length)
        missed.push(what)
      }
    }
    await Promise.all(Array.from({ length: availableParallelism() }, next))
    expect(missed.length, missed.join('; ')).toBeLessThanOrEqual(planted.length / 10)
  },
)
