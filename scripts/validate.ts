// Everything that must hold before a change is done, each step once, all of them even when one fails.
// The last line is `N passed, N failed`: every test of the suite counts as one, and so does every other step.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

interface Count {
  readonly passed: number
  readonly failed: number
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

/** A suite that ends badly without a failed test (a file that does not load, an unhandled error) is one failure. */
function runTests(): Count {
  const report = join(scratch, 'tests.json')
  const passed = run('test', '--reporter=default', '--reporter=json', `--outputFile.json=${report}`)
  const count = readCount(report)
  return passed || count.failed > 0 ? count : { ...count, failed: 1 }
}

function readCount(report: string): Count {
  try {
    const { numPassedTests, numFailedTests }: Record<string, number> = JSON.parse(readFileSync(report, 'utf8'))
    return { passed: numPassedTests ?? 0, failed: numFailedTests ?? 0 }
  } catch {
    return { passed: 0, failed: 0 }
  }
}

const counts = [...steps.map(runStep), runTests()]
rmSync(scratch, { recursive: true })
const passed = counts.reduce((sum, count) => sum + count.passed, 0)
const failed = counts.reduce((sum, count) => sum + count.failed, 0)
console.log(`\n${passed} passed, ${failed} failed`)
process.exitCode = failed === 0 && passed > 0 ? 0 : 1
