/**
 * A process that ended with so many messages waiting, and the next one: when is the first of them handled, when the last,
 * and what does it take of memory meanwhile.
 *
 *     npm run bench:recovery
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { table } from '../table.ts'

const { values } = parseArgs({
  options: {
    folder: { type: 'string', default: '.' },
    messages: { type: 'string', default: '500000,1000000' },
    vins: { type: 'string', default: '1000' },
  },
})
const script = fileURLToPath(new URL('recovering.ts', import.meta.url))
const folder = mkdtempSync(join(values.folder, 'fleethook-recovery-'))

/** Runs the program to its end and resolves to the last line it has said, as JSON. */
async function run(...args: readonly string[]): Promise<Record<string, number>> {
  const child = spawn(process.execPath, ['--expose-gc', script, ...args], { stdio: ['ignore', 'pipe', 'inherit'] })
  let last = '{}'
  createInterface({ input: child.stdout }).on('line', (line) => (last = line))
  const [code, signal] = await once(child, 'close')
  if (code !== 0 && signal !== 'SIGKILL') throw new Error(`The program ended with ${String(code)}.`)
  return JSON.parse(last)
}

const rows: string[][] = []
const idle = await run('hold', join(folder, 'idle.db'), '0', values.vins)
const mb = (bytes: number | undefined): string => ((bytes ?? 0) / 1e6).toFixed(0)
const seconds = (ms: number | undefined): string => ((ms ?? 0) / 1000).toFixed(2)
for (const messages of values.messages.split(',')) {
  const path = join(folder, `${messages}.db`)
  await run('fill', path, messages, values.vins)
  const size = statSync(path).size
  const held = await run('hold', path, messages, values.vins)
  const handled = await run('handle', path, messages, values.vins)
  rows.push([
    messages,
    mb(size),
    seconds(handled['firstMs']),
    seconds(held['indexedMs']),
    seconds(handled['lastMs']),
    mb(held['waitingBytes']),
    ((held['waitingBytes'] ?? 0) / (idle['waitingBytes'] ?? 0)).toFixed(2),
    mb(handled['peakBytes']),
  ])
}
rmSync(folder, { recursive: true })
console.log(
  'Seconds since the process was started; resident memory with all of them waiting, and its peak while they are handled.\n',
)
console.log(
  table(['waiting', 'file MB', 'first handled', 'all known', 'last handled', 'waiting MB', 'to idle', 'peak MB'], rows),
)
console.log(`\nAn idle receiver with an empty inbox: ${mb(idle['waitingBytes'])} MB resident.`)
