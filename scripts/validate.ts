// Runs every check that a change must pass. When one step fails, the others still run.
// The last line is `N passed, N failed`. Each test counts as one, and so does each other step.
import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

interface Count {
  readonly passed: number
  readonly failed: number
}

/** The part of vitest's report that this script reads. */
interface Report {
  readonly testResults: readonly {
    readonly status: string
    readonly assertionResults: readonly { readonly status: string }[]
  }[]
}

const steps = ['types', 'lint', 'format:check', 'build', 'publint', 'attw', 'jsr', 'sbom', 'size']
const scratch = mkdtempSync(join(tmpdir(), 'fleethook-validate-'))

function run(script: string, ...args: readonly string[]): boolean {
  console.log(`\n── npm run ${script}`)
  return (
    spawnSync('npm', ['run', '--silent', script, '--', ...args], { stdio: ['ignore', 'inherit', 'inherit'] }).status ===
    0
  )
}

function runStep(script: string): Count {
  const startedAt = performance.now()
  const passed = run(script)
  console.log(
    `── ${script} ${passed ? 'passed' : 'FAILED'} in ${((performance.now() - startedAt) / 1000).toFixed(1)} s`,
  )
  return { passed: Number(passed), failed: Number(!passed) }
}

/** Runs tests. An unhandled error fails the suite without a failed test or file: it counts as one failure. */
function runTests(script: string): Count {
  const report = join(scratch, `${script.replace(':', '-')}.json`)
  const passed = run(script, '--reporter=dot', '--reporter=json', `--outputFile.json=${report}`)
  const count = readCount(report)
  return passed || count.failed > 0 ? count : { ...count, failed: 1 }
}

/** Counts each test as one, and each file that did not load. */
function readCount(report: string): Count {
  if (!existsSync(report)) return { passed: 0, failed: 0 }
  const { testResults }: Report = JSON.parse(readFileSync(report, 'utf8'))
  const results = testResults.flatMap(({ status, assertionResults }) => {
    const tests = assertionResults.map((test) => test.status)
    return status === 'failed' && !tests.includes('failed') ? [...tests, status] : tests
  })
  const count = (status: string): number => results.filter((result) => result === status).length
  const rest = results.length - count('passed') - count('failed')
  if (rest > 0) console.log(`\n${rest} tests did not run.`)
  return { passed: count('passed'), failed: count('failed') }
}

const counts = [...steps.map(runStep), runTests('test:full'), runTests('test:kafka'), runTests('test:page')]
rmSync(scratch, { recursive: true })
const passed = counts.reduce((sum, count) => sum + count.passed, 0)
const failed = counts.reduce((sum, count) => sum + count.failed, 0)
console.log(`\n${passed} passed, ${failed} failed`)
process.exitCode = failed === 0 && passed > 0 ? 0 : 1
