/* The program of the page about several machines, followed to the letter. */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { spawnTarget } from '../conformance/spawn.ts'
import { blocks } from '../docs/blocks.ts'
import { hasPostgres } from '../once/servers.ts'
import { onSources, secret } from '../templates/running.ts'
import { startScene } from './scene.ts'

const root = join(import.meta.dirname, '../..')
const all = blocks(root)

test('each pool of the pages and docstrings lets a stopped process end', () => {
  const pools = all.flatMap(({ at, code }) =>
    Array.from(code.matchAll(/new pg\.Pool\(([^)]*)\)/g), ([made]) => `${at} ${made}`),
  )
  expect(pools.length).toBeGreaterThan(6)
  expect(pools.filter((pool) => !pool.includes('allowExitOnIdle: true'))).toEqual([])
})

test.skipIf(!hasPostgres)('the program of docs/several-machines.md ends by itself when it is stopped', async () => {
  await using scene = await startScene()
  await scene.prepare('fleethook')
  const block = all.find(({ at, code }) => at.startsWith('docs/several-machines.md') && code.includes('await serve('))
  const folder = join(root, 'node_modules/.cache')
  mkdirSync(folder, { recursive: true })
  const program = join(folder, `several-machines-${process.pid}.mjs`)
  onTestFinished(() => rmSync(program))
  writeFileSync(program, (block?.code ?? '').replace('port: 3000', 'port: 0'))
  await using target = await spawnTarget({
    ...{ runtime: 'node', command: process.execPath, args: [...onSources, program] },
    env: { DATABASE_URL: `postgres://test@127.0.0.1:${scene.server.port}/postgres`, WEBHOOK_SECRET: secret },
  })
  const body = JSON.stringify({
    vin: '0FLEETV14T0000001',
    createdAt: new Date().toISOString(),
    data: { BatteryLevel: 5 },
  })
  const headers = { authorization: secret }
  expect((await fetch(target.url, { method: 'POST', headers, body })).status).toBe(200)
  await target.line(/0FLEETV14T0000001 5/)
  target.kill('SIGTERM')
  expect(await target.exited).toEqual({ status: 0, signal: null })
  expect(target.output.join('\n')).not.toContain('did not end')
})
