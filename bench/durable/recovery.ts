/**
 * Measures a start with many waiting messages: the time to the first and the last handled message, and the memory in
 * between.
 *
 *     npm run bench -- durable/recovery
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

/** Runs the program to its end and resolves to the last line that it printed, as JSON. */
async function run(...args: readonly string[]): Promise<Record<string, number>> {
  const child = spawn(process.execPath, [script, ...args], { stdio: ['ignore', 'pipe', 'inherit'] })
  let last = '{}'
  createInterface({ input: child.stdout }).on('line', (line) => (last = line))
  const [code, signal] = await once(child, 'close')
  if (code !== 0 && signal !== 'SIGKILL') throw new Error(`The program ended with ${String(code)}.`)
  return JSON.parse(last)
}

const rows: string[][] = []
const mb = (bytes: number | undefined): string => ((bytes ?? 0) / 1e6).toFixed(0)
const seconds = (ms: number | undefined): string => ((ms ?? 0) / 1000).toFixed(2)
for (const messages of values.messages.split(',')) {
  const path = join(folder, `${messages}.db`)
  await run('fill', path, messages, values.vins)
  const size = statSync(path).size
  const handled = await run('handle', path, messages, values.vins)
  rows.push([messages, mb(size), seconds(handled['firstMs']), seconds(handled['lastMs']), mb(handled['peakBytes'])])
}
rmSync(folder, { recursive: true })
console.log(
  'Seconds since the start of the process, and the most resident memory until the last message was handled.\n',
)
console.log(table(['waiting', 'file MB', 'first handled', 'last handled', 'peak MB'], rows))
