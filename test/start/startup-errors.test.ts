import { type SpawnSyncReturns, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, onTestFinished, test } from 'vitest'
import { type Runtime, runtimePath } from '../../scripts/runtimes.ts'
import { inThisForm } from '../runtimes/targets.ts'
import { newFolder } from '../folder.ts'

const program = fileURLToPath(new URL('startup-program.ts', import.meta.url))
const scratch = newFolder('startup')
writeFileSync(join(scratch, 'a-file'), '')

const runs: readonly (readonly [Runtime, adapter: string, flags: readonly string[]])[] = [
  ['node22', 'node', ['--experimental-strip-types', '--no-warnings']],
  ['node24', 'node', []],
  ['node26', 'node', []],
  ['bun', 'bun', []],
  ['deno', 'deno', ['run', '--allow-all']],
]

async function takenPort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('The server has no port.')
  return address.port
}

type What = 'uncaught' | 'caught' | 'another error'

function run(
  [runtime, adapter, flags]: (typeof runs)[number],
  what: What,
  inbox: string,
  port: number,
): SpawnSyncReturns<string> {
  const args = [...flags, program, adapter, join(scratch, inbox), String(port), what]
  return spawnSync(runtimePath(runtime), args, { encoding: 'utf8', env: { ...process.env, NO_COLOR: '1' } })
}

describe.each(runs.filter(([runtime]) => inThisForm(runtime)))('on %s', (...on) => {
  const [runtime] = on

  test('a port that is taken ends the start with one block and status 1', async () => {
    const port = await takenPort()
    const { status, stderr } = run(on, 'uncaught', `${runtime}.db`, port)
    const [said = '', todo = '', ...rest] = stderr.split('\n')
    expect(said).toMatch(new RegExp(`^fleethook: serve could not listen on 127.0.0.1:${port}: \\w+\\.$`))
    expect(todo).toMatch(/^ {2}Another process has this port/)
    expect({ rest, status }).toEqual({ rest: [''], status: 1 })
  })

  test('an inbox that cannot be written ends the start with one block and status 1', () => {
    const { status, stderr } = run(on, 'uncaught', 'a-file/inbox.db', 0)
    expect(stderr).toMatch(/^fleethook: [^\n]*inbox\.db[^\n]*\n( {2}[^\n]+\n)?$/)
    expect(status).toBe(1)
  })

  test('code that catches the error goes on', async () => {
    const { status, stdout, stderr } = run(on, 'caught', `${runtime}.db`, await takenPort())
    expect({ status, stdout, stderr }).toEqual({ status: 0, stdout: 'listen_failed\n', stderr: '' })
  })

  test('another uncaught error is printed as always', () => {
    const { status, stderr } = run(on, 'another error', 'a-file/inbox.db', 0)
    expect(stderr).toContain('TypeError: of the host')
    expect(stderr).not.toContain('fleethook:')
    expect(status).toBe(1)
  })
})
