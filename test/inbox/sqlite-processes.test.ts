import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, rmSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import process from 'node:process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterEach, describe, expect, test } from 'vitest'
import { runtimePath } from '../../scripts/runtimes.ts'
import { start as startTool } from '../cli/command.ts'
import { servers } from '../runtimes/targets.ts'
import { createFiles } from './sqlite-files.ts'

const program = fileURLToPath(new URL('sqlite-process.ts', import.meta.url))
const files = createFiles()
const running: ChildProcess[] = []

interface Started {
  readonly child: ChildProcess
  line(): Promise<string>
  /** What it wrote to stderr. */
  readonly errors: string[]
  readonly ended: Promise<unknown>
}

function start(command: readonly string[], ...options: readonly string[]): Started {
  return startAs(process.getuid?.(), command, options)
}

function startAs(uid: number | undefined, command: readonly string[], options: readonly string[]): Started {
  const [executable = '', ...before] = command
  const child = spawn(executable, [...before, program, ...options], { stdio: ['pipe', 'pipe', 'pipe'], uid, gid: uid })
  running.push(child)
  const errors: string[] = []
  child.stderr.on('data', (data) => errors.push(String(data)))
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  return {
    child,
    errors,
    ended: once(child, 'exit').then(([code, signal]) => code ?? signal),
    async line() {
      const { done, value } = await lines.next()
      return done === true ? expect.fail(`It has ended: ${errors.join('')}`) : String(value)
    },
  }
}

afterEach(() => {
  for (const child of running.splice(0)) child.kill('SIGKILL')
})

const runtimes = servers.map(
  (name) => [name, [runtimePath(name), ...(name === 'deno' ? ['run', '--allow-all'] : [])]] as const,
)

describe.each(runtimes)('on %s', (name, command) => {
  const threads = name === 'deno' ? [''] : ['', 'thread']

  test.each(threads)(
    'a file belongs to one process: the next one fails, or waits until the first is killed %s',
    async (thread) => {
      const path = files.path()
      const first = start(command, path, '0', thread)
      expect(await first.line()).toBe('has it: 0 waited, .')
      const refused = start(command, path, '0', thread)
      expect(await refused.line()).toBe('failed: inbox_locked')
      const second = start(command, path, '60000', thread)
      expect(await second.line()).toBe('waits')
      first.child.kill('SIGKILL')
      expect(await second.line()).toBe('has it: 1 waited, restarted.')
      second.child.stdin?.end('close')
      expect(await second.ended).toBe(0)
      expect([...first.errors, ...second.errors].join('')).toBe('')
    },
  )

  test.each(threads)(
    'an open inbox does not keep a process alive, and the next process finds its message %s',
    async (thread) => {
      const path = files.path()
      const first = start(command, path, '0', thread)
      await first.line()
      first.child.stdin?.end('leave')
      expect(await first.ended).toBe(0)
      const second = start(command, path, '0', thread)
      expect(await second.line()).toBe('has it: 1 waited, restarted.')
    },
  )
})

/** The rights that are missing, as the owner of the inbox left them. */
const closed: Readonly<Record<string, (path: string) => string>> = {
  'the file': (path) => leave(path, 0o600),
  'the file, which others may read': (path) => leave(path, 0o644),
  'the journal': (path) => {
    leave(path, 0o666)
    writeFileSync(`${path}-wal`, '')
    return leave(`${path}-wal`, 0o600)
  },
  'the folder': (path) => {
    leave(path, 0o666)
    return leave(dirname(path), 0o755)
  },
  'a folder that this user may not search': (path) => leave(dirname(path), 0o700),
  'a folder above': (path) => {
    rmSync(dirname(path), { recursive: true })
    return leave(dirname(dirname(path)), 0o755)
  },
}

function leave(path: string, mode: number): string {
  chmodSync(path, mode)
  return path
}

// Only root can become another user.
describe.skipIf(process.getuid?.() !== 0)('an inbox of another user', () => {
  test.each(Object.keys(closed))('is refused with whose it is and what to do: %s', async (what) => {
    const path = files.path()
    const first = start([process.execPath], path)
    await first.line()
    first.child.stdin?.end('close')
    await first.ended
    for (const folder of [dirname(path), dirname(dirname(path))]) chmodSync(folder, 0o777)
    const refused = closed[what]?.(path) ?? ''
    const text = `The inbox ${path} cannot be used: this process runs as user 65534 and may not read and write ${refused}, which belongs to user 0. Run it as user 0, or let user 65534 read and write there.`
    const second = startAs(65_534, [process.execPath], [path])
    expect(await second.line()).toBe('failed: inbox_unavailable')
    expect(await second.line()).toContain(text)
    if (what === 'a folder above') return
    const tool = startTool(['dead', 'list', '--inbox', path], {}, '/', 65_534)
    expect((await tool.ended).stderr.replaceAll(/\s+/g, ' ')).toContain(text)
  })
})
