import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { readTemplate, templateNames } from '../../adapters/cli/init.ts'
import { freePort, spawnTarget } from '../conformance/spawn.ts'
import { environment, type } from './user.ts'

/** What these do not have on a new user's machine: the function's URL, brokers and a database (`test/kafka` and `test/postgres` have them). */
const needsMore = ['lambda', 'kafka', 'own-server', 'postgres']

let scratch: string
beforeAll(() => {
  scratch = realpathSync(mkdtempSync(join(tmpdir(), 'fleethook-templates-')))
})
afterAll(() => rmSync(scratch, { recursive: true, force: true }))

describe('each template works from the registry, by the lines that `init` prints', () => {
  test.concurrent.each(templateNames())('%s', async (name) => {
    const printed = await type(scratch, `npx fleethook init ${name}`)
    const folder = join(scratch, name)
    const files = [...readTemplate(name).files.keys()]
    expect(files.filter((path) => !existsSync(join(folder, path)))).toEqual([])
    const [, block = ''] = /^```sh\n([^]+?)^```/m.exec(readFileSync(join(folder, 'README.md'), 'utf8')) ?? []
    const lines = block.split('\n').map((line) => line.replace(/ +#.*/, ''))
    const [install = ''] = lines
    expect(printed).toContain(`\n  cd ${name} && ${install}\n`)

    await type(folder, install)
    if (install === 'npm install') await type(folder, 'npm ls --all')
    const tested = await type(folder, lines.find((line) => line.endsWith(' test')) ?? '')
    expect(tested).toMatch(/(pass|passed) [1-9]|[1-9]\d* (pass|passed)/)
    expect(tested).not.toMatch(/(fail|failed) [1-9]|[1-9]\d* (fail|failed)/)
    await type(
      folder,
      name === 'deno' ? 'deno check server.ts server.test.ts' : 'node node_modules/typescript/bin/tsc --noEmit',
    )

    if (!needsMore.includes(name)) await expectStartAndSend(folder, lines)
    rmSync(folder, { recursive: true, force: true })
  })
})

/** Starts the template on a free port and posts to it. */
async function expectStartAndSend(folder: string, lines: readonly string[]): Promise<void> {
  const send = lines.find((line) => line.includes('fleethook send')) ?? ''
  const start = lines.find((line) => / (start|dev)$/.test(line)) ?? ''
  const port = await freePort()
  if (start.endsWith('start')) await expectOneBlockWhenThePortIsTaken(folder, start)
  const env = { PORT: String(port), CHAT_WEBHOOK_URL: 'http://localhost:9/' }
  const command = readFileSync(join(folder, 'package.json'), 'utf8').includes('wrangler dev')
    ? `${start} -- --port ${port} --inspector-port ${await freePort()}`
    : start
  const server = await spawnTarget({
    runtime: folder,
    command: 'bash',
    args: ['-c', command],
    cwd: folder,
    detached: true,
    env: { ...environment, ...env },
  })
  try {
    const url = /--url (\S+)/.exec(send)?.[1] ?? 'http://localhost:3000/'
    const here = `--url ${url.replace(/:\d+/, `:${port}`)} --count 60 --rate 200 --json`
    expect(await type(folder, `${send.replace(/ --url \S+/, '')} ${here}`)).toMatch(/"accepted": 60\b/)
  } finally {
    process.kill(-server.pid, 'SIGTERM')
    await server.exited
  }
}

async function expectOneBlockWhenThePortIsTaken(folder: string, start: string): Promise<void> {
  const holder = createServer().listen(0)
  await once(holder, 'listening')
  const address = holder.address()
  if (address === null || typeof address === 'string') throw new Error('The server has no port.')
  const env = { HOST: '::', PORT: String(address.port), CHAT_WEBHOOK_URL: 'http://localhost:9/' }
  const printed = await type(folder, start, env).then(String, String)
  holder.close()
  expect(printed).toMatch(/^fleethook: .*(EADDRINUSE|AddrInUse).*\n( {2}Another process has this port.*\n)?/m)
  expect(printed).not.toMatch(/^ +at /m)
}
