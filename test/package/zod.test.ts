import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, realpathSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { beforeAll, expect, inject, test } from 'vitest'

/** A project in which the package is installed, and zod is not. */
const folder = realpathSync(mkdtempSync(join(tmpdir(), 'fleethook-without-zod-')))
const packages = join(folder, 'node_modules')

beforeAll(() => {
  const installed = join(inject('consumer'), 'node_modules')
  mkdirSync(packages)
  for (const name of readdirSync(installed))
    if (!['zod', 'fleethook'].includes(name) && !name.startsWith('.'))
      symlinkSync(join(installed, name), join(packages, name))
  cpSync(join(installed, 'fleethook'), join(packages, 'fleethook'), { recursive: true })
})

/** Imports an entry. Returns what went wrong. */
function problemWith(entry: string): string {
  const script = `await import('${entry}').catch(({ message }) => console.log(message))`
  return execFileSync(process.execPath, ['--input-type=module', '-e', script], { cwd: folder, encoding: 'utf8' })
}

test('every entry but the schemas works without zod, and of the schemas the runtime says what is missing', () => {
  const { exports } = JSON.parse(readFileSync(join(packages, 'fleethook/package.json'), 'utf8'))
  const entries = Object.keys(exports)
    .map((path) => path.replace('.', 'fleethook'))
    .filter((entry) => !entry.endsWith('.json'))
  expect(entries).toContain('fleethook/client')
  const problems = entries.map((entry) => [entry, problemWith(entry)]).filter(([, problem]) => problem !== '')
  expect(problems).toEqual([['fleethook/schemas', expect.stringMatching(/^Cannot find package 'zod'/)]])
})

test.each(['products', 'dead', 'openapi', 'sandbox', 'send', 'run'])('fleethook %s works without zod', (name) => {
  const command = join(packages, 'fleethook/dist/adapters/cli/main.js')
  const help = execFileSync(process.execPath, [command, name, '--help'], { cwd: folder, encoding: 'utf8' })
  expect(help).toContain(`fleethook ${name}`)
})
