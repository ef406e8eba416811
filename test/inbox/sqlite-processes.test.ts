import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterEach, describe, expect, test } from 'vitest'
import { runtimePath } from '../../scripts/runtimes.ts'
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
  const [executable = '', ...before] = command
  const child = spawn(executable, [...before, program, ...options], { stdio: ['pipe', 'pipe', 'pipe'] })
  running.push(child)
  const errors: string[] = []
  child.stderr.on('data', (data) => errors.push(String(data)))
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  return {
    child,
    errors,
    ended: once(child, 'exit').then(([code, signal]) => code ?? signal),
    line: async () => String((await lines.next()).value),
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
