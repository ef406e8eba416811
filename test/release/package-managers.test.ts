import { mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type } from './user.ts'

const program = `
import { createReceiver } from 'fleethook'
const receiver = createReceiver({ secret: false }).on('state', ({ state }) => console.log('handled', state))
const body = { state: 'online', vin: 'VIN', createdAt: '2026-11-21T10:00:00Z' }
console.log((await receiver.accept({ body })).status)
await receiver.drain()
`

let scratch: string
beforeAll(() => {
  scratch = realpathSync(mkdtempSync(join(tmpdir(), 'fleethook-release-')))
})
afterAll(() => rmSync(scratch, { recursive: true, force: true }))

/** An empty folder with a program that uses the package. */
function folderWithProgram(): string {
  const folder = mkdtempSync(join(scratch, 'project-'))
  writeFileSync(join(folder, 'receive.mjs'), program)
  return folder
}

test.concurrent.each([
  ['npm install', 'npm install fleethook hono', 'node receive.mjs'],
  ['bun add', 'bun add fleethook hono', 'bun receive.mjs'],
  ['deno add', 'deno add npm:fleethook npm:hono', 'deno run -A receive.mjs'],
])('%s gets the package, and a receiver handles a message', async (_name, add, run) => {
  const folder = folderWithProgram()
  await type(folder, add)
  expect(await type(folder, run)).toMatch(/200\nhandled online\n/)
})

test.concurrent('npm installs as many packages and megabytes as the README says', async () => {
  const folder = folderWithProgram()
  await type(folder, 'npm install fleethook')
  const installed = join(folder, 'node_modules')
  const { packages }: { packages: Record<string, object> } = JSON.parse(
    readFileSync(join(installed, '.package-lock.json'), 'utf8'),
  )
  const bytes = readdirSync(installed, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, { parentPath, name }) => sum + statSync(join(parentPath, name)).size, 0)
  const [, count, megabytes] = /adds (\d+) packages and ([\d.]+) MB/.exec(readFileSync('README.md', 'utf8')) ?? []
  expect(Object.keys(packages)).toHaveLength(Number(count))
  // A new version of a dependency may change a little.
  expect(Math.abs(bytes / 1e6 - Number(megabytes))).toBeLessThan(0.3)
})

test.concurrent('npm has no complaint about a peer, without the optional ones and with all of them', async () => {
  const folder = folderWithProgram()
  await type(folder, 'npm init -y')
  const complaints = /peer|invalid|unmet|ERESOLVE/i
  expect(await type(folder, 'npm install fleethook')).not.toMatch(complaints)
  await type(folder, 'npm ls --all')
  const { peerDependencies }: { peerDependencies: Record<string, string> } = JSON.parse(
    readFileSync(join(folder, 'node_modules/fleethook/package.json'), 'utf8'),
  )
  expect(await type(folder, `npm install ${Object.keys(peerDependencies).join(' ')}`)).not.toMatch(complaints)
  await type(folder, 'npm ls --all')
})
