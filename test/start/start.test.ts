import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { stripVTControlCharacters } from 'node:util'
import { expect, test } from 'vitest'

const topics = ['data', 'state', 'connectivity', 'vehicle_data', 'alerts', 'errors']

// Colours are what a terminal gets, and a pipe without them does not.
test.each([
  ['in a terminal', { FORCE_COLOR: '1' }],
  ['into a pipe', { NO_COLOR: '1' }],
])(
  'npm start %s: vehicles of the sandbox, handled by the receiver; Ctrl+C ends all of it and says what was handled',
  async (_where, colours) => {
    const folder = mkdtempSync(join(tmpdir(), 'fleethook-start-'))
    const { FORCE_COLOR: _forced, NO_COLOR: _none, ...inherited } = process.env
    const env = {
      ...inherited,
      ...colours,
      PORT: '0',
      FLEETHOOK_INBOX: join(folder, 'inbox.db'),
      // A fresh clone has no build.
      NODE_OPTIONS: `--import=${new URL('../docs/resolve-sources.ts', import.meta.url).href}`,
    }
    const child = spawn(process.execPath, ['scripts/start.ts'], { env, stdio: ['ignore', 'pipe', 'pipe'] })
    const ended = once(child, 'exit')
    const errors: string[] = []
    child.stderr.on('data', (text: Buffer) => errors.push(String(text)))
    const handled = new Map<string, number>()
    let last = ''
    let stopping = false
    for await (const coloured of createInterface(child.stdout)) {
      const line = stripVTControlCharacters(coloured)
      if (line !== '') last = line
      const topic = topics.find((each) => line.includes(` ${each} `) && line.includes('0FLEETV'))
      if (topic === undefined) continue
      handled.set(topic, (handled.get(topic) ?? 0) + 1)
      if (!stopping && handled.size >= 3 && (handled.get('data') ?? 0) >= 5) stopping = child.kill('SIGINT')
    }
    expect(await ended).toEqual([0, null])
    const [, received, done] = /^received (\d+), handled (\d+), left 0, lost 0$/.exec(last) ?? []
    expect({ last, errors }).toEqual({
      last: expect.stringMatching(/^received/),
      errors: [],
    })
    expect(done).toBe(received)
    expect(Number(done)).toBeGreaterThanOrEqual(7)
    rmSync(folder, { recursive: true })
  },
)
