import { execFile, spawn } from 'node:child_process'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Block, blocks } from './blocks.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const folder = `${root}test/docs/.blocks`
const all = blocks(root)

beforeAll(() => {
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder)
  for (const { name, code } of all) writeFileSync(`${folder}/${name}`, `${code}\nexport {}\n`)
  writeFileSync(
    `${folder}/tsconfig.json`,
    JSON.stringify({
      extends: '../../../tsconfig.json',
      compilerOptions: { isolatedDeclarations: false, declaration: false },
      include: ['*.ts', '../../../src/http/timing-safe-equal.d.ts'],
    }),
  )
})

afterAll(() => rmSync(folder, { recursive: true, force: true }))

test('every code block of the documentation and of the docstrings compiles', { timeout: 180_000 }, async () => {
  expect(all.length).toBeGreaterThan(20)
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [`${root}node_modules/typescript/bin/tsc`, '-p', folder],
    { cwd: root },
  ).catch((error: { stdout: string }) => error)
  expect(stdout).toBe('')
})

describe('every code block of the pages runs and prints what its comments say', { concurrent: true }, () => {
  const pages = all.filter((block) => block.at.includes('.md:') && !block.flags.includes('compile'))
  test.each(pages.map((block) => [block.at, block] as const))('%s', { timeout: 180_000 }, async (_at, block) => {
    const { code, output } = await run(block)
    for (const printed of block.prints) expect(output).toContain(printed)
    expect(code, output).toBe(0)
  })
})

/** Runs a block as a program. A program that serves gets SIGTERM when it listens. */
async function run({ name, code }: Block): Promise<{ readonly code: number | null; readonly output: string }> {
  // The programs run at the same time, and only one of them could listen on port 3000.
  writeFileSync(`${folder}/${name}`, code.replaceAll('port: 3000', 'port: 0'))
  // Files that a program writes, such as data/inbox.db, are of no other program, and do not stay in the checkout.
  const cwd = `${folder}/${name}-cwd`
  mkdirSync(cwd)
  const child = spawn(process.execPath, ['--import', `${root}test/docs/resolve-sources.ts`, `${folder}/${name}`], {
    cwd,
    env: { ...process.env, WEBHOOK_SECRET: 'a-long-random-value', FLEETHOOK_OPERATOR_SECRET: 'another-random-value' },
  })
  let output = ''
  let isStopped = false
  const read = (chunk: Buffer): void => {
    output += chunk.toString()
    if (!isStopped && output.includes('listening on')) {
      isStopped = true
      child.kill('SIGTERM')
    }
  }
  child.stdout.on('data', read)
  child.stderr.on('data', read)
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (exit) => resolve({ code: exit, output }))
  })
}
