// Runs every check that a change must pass, or those that are named: `npm run validate -- lint size`. `--help` lists them. The tests in
// their full form run only when they are named: `npm run validate -- test:full`.
// When one step fails, the others still run. The last line is `N passed, N failed`. Each test counts as one, and so does each
// other step.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs'
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

const checks: Readonly<Record<string, string>> = {
  types: 'npm run --silent types',
  lint: 'npm run --silent lint',
  format: 'prettier --check --log-level warn .',
  build: 'npm run --silent build',
  publint: 'node scripts/install.ts checks -- publint --strict',
  attw: 'node scripts/install.ts checks -- attw --pack . --profile esm-only',
  jsr: 'node scripts/jsr.ts',
  sbom: 'npm sbom --sbom-format cyclonedx --sbom-type library --omit dev > dist/sbom.cdx.json',
  size: 'node scripts/size.ts',
  floor: 'vitest run --config test/floor.config.ts',
}
/** The tests with brokers wait most of their time, so they run beside the other suites. */
const waiting = 'test:kafka'
const suites = ['test', 'test:real', 'test:page', 'test:release', waiting]
const onRequest = ['test:full']
const byDefault = [...Object.keys(checks), ...suites]
const names = [...byDefault, ...onRequest]

const given = process.argv.slice(2)
const unknown = given.filter((name) => !names.includes(name))
if (unknown.length > 0) {
  console.log(`npm run validate -- [${names.join('] [')}]`)
  process.exit(unknown.includes('--help') ? 0 : 1)
}
const wanted = given.length === 0 ? byDefault : given
const scratch = mkdtempSync(join(tmpdir(), 'fleethook-validate-'))

async function isPassed(command: string, output: 'inherit' | number = 'inherit'): Promise<boolean> {
  const [status] = await once(spawn(command, { shell: true, stdio: ['ignore', output, output] }), 'exit')
  return status === 0
}

async function runCheck(name: string, command: string): Promise<Count> {
  console.log(`\n── ${name}`)
  const startedAt = performance.now()
  const passed = await isPassed(command)
  console.log(`── ${name} ${passed ? 'passed' : 'FAILED'} in ${((performance.now() - startedAt) / 1000).toFixed(1)} s`)
  return { passed: Number(passed), failed: Number(!passed) }
}

/** Runs tests. With `file`, what they say goes there. An unhandled error fails the suite without a failed test or file: it counts as one failure. */
async function runTests(suite: string, file?: string): Promise<Count> {
  const report = join(scratch, `${suite.replace(':', '-')}.json`)
  const reporters = `--reporter=dot --reporter=json --outputFile.json="${report}"`
  const startedAt = performance.now()
  console.log(`\n── ${suite}${file === undefined ? '' : ' runs beside the others'}`)
  const passed = await isPassed(
    `npm run --silent ${suite} -- ${reporters}`,
    file === undefined ? 'inherit' : openSync(file, 'w'),
  )
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(0)
  console.log(`── ${suite} took ${seconds} s`)
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

const counts: Count[] = []
for (const [name, command] of Object.entries(checks)) {
  if (wanted.includes(name)) counts.push(await runCheck(name, command))
}
const tests = [...suites, ...onRequest].filter((name) => wanted.includes(name))
const isBeside = tests.length > 1 && tests.includes(waiting)
const said = join(scratch, 'said.txt')
const beside = isBeside ? runTests(waiting, said) : undefined
for (const name of tests) {
  if (!isBeside || name !== waiting) counts.push(await runTests(name))
}
if (beside !== undefined) {
  counts.push(await beside)
  console.log(`\n── ${waiting}\n${readFileSync(said, 'utf8')}`)
}
rmSync(scratch, { recursive: true })
const passed = counts.reduce((sum, count) => sum + count.passed, 0)
const failed = counts.reduce((sum, count) => sum + count.failed, 0)
console.log(`\n${passed} passed, ${failed} failed`)
process.exitCode = failed === 0 && passed > 0 ? 0 : 1
