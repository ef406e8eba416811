import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect, test } from 'vitest'
import { inForm } from '../../form.ts'
import { programCommand } from '../../runtimes/targets.ts'

const messages = inForm({ real: 3_000, full: 6_000, long: 100_000 })

/** Kills one process after another while it handles, until one of them is done. Returns how often each message was written. */
async function written(isControl: boolean): Promise<{ readonly kills: number; readonly times: readonly number[] }> {
  const folder = mkdtempSync(join(tmpdir(), 'fleethook-once-'))
  const { command, args, env } = programCommand('node24', join(import.meta.dirname, 'once-program.ts'), {
    SETTINGS: JSON.stringify({ folder, messages, isControl }),
  })
  try {
    for (let kills = 0; kills < 1_000; kills += 1) {
      const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'ignore'] })
      let output = ''
      let handled = 0
      // By what was handled and not by time, so that a slow machine has as many kills. A message dies only of three kills in a row.
      const last = 200 + Math.floor(Math.random() * 300)
      child.stdout.on('data', (data) => {
        output += String(data)
        handled += String(data).split('handled').length - 1
        if (handled > last) child.kill('SIGKILL')
      })
      await once(child, 'close')
      if (!output.includes('done')) continue
      const db = new DatabaseSync(join(folder, 'data.db'))
      const rows = db.prepare('SELECT count(*) AS times FROM readings GROUP BY number').all()
      db.close()
      return { kills, times: rows.map(({ times }) => Number(times)) }
    }
    throw new Error('A thousand processes were killed before one was done.')
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

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
