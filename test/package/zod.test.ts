import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, readdirSync, readFileSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, expect, inject, test } from 'vitest'
import { newFolder } from '../folder.ts'

/** A project in which the package is installed, and zod is not. */
const folder = newFolder('without-zod')
const packages = join(folder, 'node_modules')

beforeAll(() => {
  const installed = join(inject('consumer'), 'node_modules')
  mkdirSync(packages)
  for (const name of readdirSync(installed))
    if (!['zod', 'fleethook'].includes(name) && !name.startsWith('.'))
      symlinkSync(join(installed, name), join(packages, name))
  cpSync(join(installed, 'fleethook'), join(packages, 'fleethook'), { recursive: true })
})

/** Imports entries. Returns those that failed, each with what went wrong. */
function problemsWith(entries: readonly string[]): unknown {
  const script = `
    const problems = []
    for (const entry of ${JSON.stringify(entries)}) await import(entry).catch(({ message }) => problems.push([entry, message]))
    console.log(JSON.stringify(problems))`
  const args = ['--input-type=module', '-e', script]
  return JSON.parse(execFileSync(process.execPath, args, { cwd: folder, encoding: 'utf8', stdio: 'pipe' }))
}

test('every entry but the schemas works without zod, and of the schemas the runtime says what is missing', () => {
  const { exports } = JSON.parse(readFileSync(join(packages, 'fleethook/package.json'), 'utf8'))
  const entries = Object.keys(exports)
    .map((path) => path.replace('.', 'fleethook'))
    .filter((entry) => !entry.endsWith('.json'))
  expect(entries).toContain('fleethook/client')
  expect(problemsWith(entries)).toEqual([['fleethook/schemas', expect.stringMatching(/^Cannot find package 'zod'/)]])
})

test.each(['products', 'dead', 'openapi', 'sandbox', 'send', 'run'])('fleethook %s works without zod', (name) => {
  const command = join(packages, 'fleethook/dist/adapters/cli/main.js')
  const help = execFileSync(process.execPath, [command, name, '--help'], {
    cwd: folder,
    encoding: 'utf8',
    stdio: 'pipe',
  })
  expect(help).toContain(`fleethook ${name}`)
})
