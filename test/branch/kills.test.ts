// A receiver with branches on one file is killed under load, once more and once more.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { createInterface } from 'node:readline'
import { describe, expect, test } from 'vitest'
import { newFolder } from '../folder.ts'
import { inForm } from '../form.ts'

const program = join(import.meta.dirname, 'killed-program.ts')

/** Runs the program until it has posted `killAfter` messages, or until it ends. Returns how many were acknowledged. */
async function run(args: readonly string[], killAfter: number = Infinity): Promise<number> {
  const child = spawn(process.execPath, [program, ...args], { stdio: ['ignore', 'pipe', 'inherit'] })
  const ended = once(child, 'exit')
  let acknowledged = 0
  for await (const _line of createInterface({ input: child.stdout })) {
    acknowledged += 1
    if (acknowledged === killAfter) child.kill('SIGKILL')
  }
  await ended
  return acknowledged
}

/** What a reader has done, each message once, by vehicle. */
function doneBy(folder: string, who: string): ReadonlyMap<string, readonly number[]> {
  const lines = readFileSync(join(folder, `${who}.txt`), 'utf8')
    .trim()
    .split('\n')
  const found = Map.groupBy([...new Set(lines)], (line) => line.split(' ', 1).join())
  return new Map([...found].map(([vin, each]) => [vin, each.map((line) => Number(line.split(' ')[1]))] as const))
}

describe.each(['', 'thread'])('with kills, the file %s', (thread) => {
  test(
    'each reader handles every message that was acknowledged, in order, also the reader that was down',
    { timeout: 300_000 },
    async () => {
      const folder = newFolder('kills')
      const each = inForm({ real: 150, full: 300, long: 1_000 })
      let posted = 0
      for (let round = 0; round < inForm({ real: 3, full: 6, long: 20 }); round += 1)
        posted += await run([folder, String(round * each), String(each), 'down', thread], Math.floor(each * 0.7))
      await run([folder, '1000000', '10', 'up', thread])
      for (const who of ['receiver', 'staging', 'crm']) {
        const done = doneBy(folder, who)
        const count = [...done.values()].reduce((sum, { length }) => sum + length, 0)
        expect(count, who).toBeGreaterThanOrEqual(posted + 10)
        for (const numbers of done.values()) expect(numbers).toEqual(numbers.toSorted((one, other) => one - other))
      }
    },
  )
})
