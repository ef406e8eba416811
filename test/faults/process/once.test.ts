import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import { inForm } from '../../form.ts'
import { programCommand } from '../../runtimes/targets.ts'
import type { OnceSettings } from './once-program.ts'
import { newFolder } from '../../folder.ts'

const messages = inForm({ real: 3_000, full: 6_000, long: 100_000 })

/** Starts a process, and kills it when it has handled this number of messages. Resolves to whether it was done before. */
async function run(settings: OnceSettings, mostHandled = Infinity): Promise<boolean> {
  const { command, args, env } = programCommand('node24', join(import.meta.dirname, 'once-program.ts'), {
    SETTINGS: JSON.stringify(settings),
  })
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'ignore'] })
  let output = ''
  let handled = 0
  child.stdout.on('data', (data) => {
    output += String(data)
    handled += String(data).split('handled').length - 1
    if (handled > mostHandled) child.kill('SIGKILL')
  })
  await once(child, 'close')
  return output.includes('done')
}

/** By what was handled and not by time, so that a slow machine has as many kills. A message dies only of three kills in a row. */
const fewHundred = (): number => 200 + Math.floor(Math.random() * 300)

/** How often each message was written. */
function timesIn(folder: string): readonly number[] {
  const db = new DatabaseSync(join(folder, 'data.db'))
  const rows = db.prepare('SELECT count(*) AS times FROM readings GROUP BY number ORDER BY number').all()
  db.close()
  return rows.map(({ times }) => Number(times))
}

/** Kills one process after another while it handles, until one of them is done. */
async function written(isControl: boolean): Promise<{ readonly kills: number; readonly times: readonly number[] }> {
  const folder = newFolder('once')
  for (let kills = 0; kills < 1_000; kills += 1)
    if (await run({ folder, messages, isControl }, fewHundred())) return { kills, times: timesIn(folder) }
  throw new Error('A thousand processes were killed before one was done.')
}

test(
  'killed while it replays, a receiver writes each message of each replay exactly once',
  { timeout: 600_000 },
  async () => {
    const folder = newFolder('once')
    const settings = { folder, messages: 600, isControl: false }
    expect(await run(settings)).toBe(true)
    expect(timesIn(folder)).toEqual(Array.from({ length: 600 }, () => 1))
    for (let round = 0; round < 4; round += 1) {
      const before = timesIn(folder)
      expect(await run({ ...settings, replays: true }, 30 + 20 * round)).toBe(false)
      // What the replay had begun goes on, also over kills.
      while (!(await run(settings, 25)));
      const more = timesIn(folder).map((times, number) => times - (before[number] ?? 0))
      expect(more.filter((times) => times === 1).length).toBeGreaterThan(30)
      expect(more.filter((times) => times > 1)).toEqual([])
    }
  },
)

test('killed over and over, a receiver writes each message exactly once into the database of its handler', async () => {
  const { kills, times } = await written(false)
  expect(kills).toBeGreaterThan(2)
  expect(times).toHaveLength(messages)
  expect(times.filter((count) => count !== 1)).toEqual([])
}, 600_000)

test('control: without the mark some are written twice', async () => {
  const { kills, times } = await written(true)
  expect(kills).toBeGreaterThan(0)
  expect(times).toHaveLength(messages)
  expect(times.filter((count) => count > 1)).not.toEqual([])
}, 600_000)
