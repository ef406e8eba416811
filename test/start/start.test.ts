import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { stripVTControlCharacters } from 'node:util'
import { expect, test } from 'vitest'
import { sqliteInbox } from '../../adapters/inbox/sqlite.ts'
import { createReceiver } from '../../src/index.ts'
import { newFolder } from '../folder.ts'

const topics = ['data', 'state', 'connectivity', 'vehicle_data', 'alerts', 'errors']
const noteLine =
  /^\d\d:\d\d:\d\d ( {12}0FL[3YSX]EETV\w{9} (rule      Locked becomes false|trip      \d+ min, (\d+\.\d|\?) miles, (-?\d+\.\d|\?) kWh.*|charge    \d+ min, (\d+\.?\d*|\?) to (\d+\.?\d*|\?) %, (\d+\.\d|\?) kWh.*)|a handler for (state|alerts) failed: (saveState|bookWorkshop), attempt \d of 3: The .*|a message of topic alerts is a dead letter after 3 attempts: .*)$/
const eventLine = /^\d\d:\d\d:\d\d [ \d:().-]{11} 0FL[3YSX]EETV\w{9} (service|maker|collector) +(\w+) +\S/

/** How many messages were received, were handled, are dead letters, and are left. */
function totals(line: string): readonly number[] {
  return (
    /^received (\d+), handled (\d+), dead letters (\d+), left (\d+), lost 0$/.exec(line)?.slice(1).map(Number) ?? []
  )
}

test.concurrent.each([
  ['with colors', { FORCE_COLOR: '1' }],
  ['into a pipe', { NO_COLOR: '1' }],
])(
  'npm start %s shows every format and topic, a rule, a trip, a charge, a retry and a dead letter within 20 seconds; Ctrl+C ends it with a table',
  { timeout: 180_000 },
  async (_where, colors) => {
    const folder = newFolder('start')
    const { FORCE_COLOR: _forced, NO_COLOR: _none, ...inherited } = process.env
    const env = { ...inherited, ...colors, PORT: '0', FLEETHOOK_INBOX: join(folder, 'inbox.db') }
    const child = spawn(process.execPath, ['scripts/start.ts'], { env, stdio: ['ignore', 'pipe', 'pipe'] })
    const ended = once(child, 'exit')
    const errors: string[] = []
    child.stderr.on('data', (text: Buffer) => errors.push(String(text)))

    const lines: string[] = []
    const seen = new Set<string>()
    let startedAt = 0
    let stopping = false
    for await (const line of createInterface(child.stdout)) {
      lines.push(stripVTControlCharacters(line))
      const [, format, topic] = eventLine.exec(lines.at(-1) ?? '') ?? []
      if (format === undefined || topic === undefined) continue
      if (seen.size === 0) startedAt = performance.now()
      seen.add(format).add(topic)
      const hasNotes = [/ charge +\d/, / rule /, /is a dead letter/].every((note) =>
        lines.some((each) => note.test(each)),
      )
      const isComplete = seen.size === topics.length + 3 && hasNotes
      if (!stopping && (isComplete || performance.now() - startedAt > 20_000)) stopping = child.kill('SIGINT')
    }
    expect(await ended).toEqual([0, null])
    expect(errors).toEqual([])
    expect([...seen].toSorted()).toEqual([...topics, 'service', 'maker', 'collector'].toSorted())

    const shown = lines.filter((line) => line !== '')
    expect(shown[1]).toMatch(/^ *http:\/\/localhost:\d+$/)
    expect(shown[4]).toMatch(/^ *http:\/\/127\.0\.0\.1:\d+\/#secret=[\w-]{24}$/)
    expect(shown.filter((line) => line.length > 100)).toEqual([])
    expect(shown[6]).toContain('own clock. After waking, some are minutes ahead.')
    expect(shown.join('\n')).not.toContain('earlier runs')
    // The banner before the events, the table after them, one line for each event, and one for what happens to it.
    const events = shown.slice(8, -8).filter((line) => eventLine.test(line))
    const notes = shown.slice(8, -8).filter((line) => !eventLine.test(line))
    expect(notes.filter((line) => !noteLine.test(line))).toEqual([])
    expect(notes.join('\n')).toMatch(/ trip {6}30 min, 21\.6 miles, 6\.1 kWh\n/)
    expect(notes.join('\n')).toMatch(/ charge {4}110 min, 60\.1 to 80 %, 16\.2 kWh/)
    for (const note of ['rule', 'saveState, attempt 1 of 3', 'bookWorkshop, attempt 1 of 3', 'is a dead letter'])
      expect(notes.join('\n')).toContain(note)
    expect(shown.at(-8)).toMatch(/^handled +service +vehicle_maker +event_collector$/)
    expect(shown.slice(-7, -1).map((line) => line.replaceAll(/ +\d+ of \d+/g, ' n'))).toEqual(
      topics.map((topic) => `${topic} n n n`),
    )
    // A retry can be due after the stop.
    const [received = 0, handled = 0, dead = 0, left = 0] = totals(shown.at(-1) ?? '')
    expect(dead).toBe(1)
    expect(handled + dead + left).toBe(received)
    expect(events.length).toBeGreaterThanOrEqual(handled + dead)
    expect(events.length).toBeLessThanOrEqual(received)
  },
)

test.concurrent(
  'npm start counts messages that its last run left apart from those that it receives',
  async () => {
    const folder = newFolder('start')
    const path = join(folder, 'inbox.db')
    const last = createReceiver({ secret: false, inbox: sqliteInbox({ path }) }).on('*', () => new Promise(() => {}))
    for (const state of ['online', 'driving'])
      await last.accept({
        authorization: undefined,
        body: { vin: '0FL3EETV000000001', createdAt: new Date().toISOString(), state },
      })
    await last.drain({ handlerGraceMs: 0 })

    const { FORCE_COLOR: _forced, ...inherited } = process.env
    const env = { ...inherited, NO_COLOR: '1', PORT: '0', FLEETHOOK_INBOX: path }
    const child = spawn(process.execPath, ['scripts/start.ts'], { env, stdio: ['ignore', 'pipe', 'inherit'] })
    const lines: string[] = []
    let stopping = false
    for await (const line of createInterface(child.stdout)) {
      lines.push(line)
      // The vehicles of this run have sent something, and the gap since the last run was handled.
      const isEnough =
        lines.filter((each) => eventLine.test(each)).length > 5 && lines.some((each) => each.includes('gap'))
      // A second signal ends the process at once.
      if (isEnough && !stopping) stopping = child.kill('SIGINT')
    }
    expect(lines.join('\n')).toContain('The inbox also has what earlier runs left: their dead letters, and a gap')
    expect(lines).toContain(`To begin afresh, stop and delete ${path}.`)
    const [sums = '', recovered] = lines.slice(-2)
    expect(recovered).toBe('recovered from the last run and handled: 2')
    // What arrived a moment before the stop can be left for the next run.
    const [received = 0, handled = 0, dead = 0, left = 0] = totals(sums)
    expect(handled + dead + left, sums).toBe(received)
    expect(handled).toBeGreaterThan(0)
  },
  180_000,
)
