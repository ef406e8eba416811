import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, inject, test } from 'vitest'
import { type Runtime, runtimePath } from '../../scripts/runtimes.ts'
import { newFolder } from '../folder.ts'
import { inThisForm } from '../runtimes/targets.ts'

const script = `
import process from 'node:process'
import { createReceiver, FleethookError } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'

const [path, thread] = process.argv.slice(2)
try {
  const inbox = sqliteInbox({ path, thread: thread === 'thread' })
  const receiver = createReceiver({ secret: 'a-long-random-value', inbox })
  const handled = new Promise((resolve) => receiver.on('state', ({ state }) => resolve(state)))
  const { status } = await receiver.accept({
    authorization: 'a-long-random-value',
    body: { state: 'online', vin: 'VIN', createdAt: '2026-11-21T10:00:00Z' },
  })
  const state = await handled
  const { left, lost } = await receiver.drain()
  console.log(JSON.stringify({ status, state, left, lost }))
} catch (error) {
  if (!(error instanceof FleethookError)) throw error
  console.log(JSON.stringify({ code: error.code, hint: error.hint }))
}
`

const works = { status: 200, state: 'online', left: 0, lost: 0 }

const runs: readonly (readonly [Runtime, thread: '' | 'thread'])[] = [
  ['node22.13', ''],
  ['node22', ''],
  ['node22', 'thread'],
  ['node24', ''],
  ['node24', 'thread'],
  ['node26', 'thread'],
  ['bun', ''],
  ['bun', 'thread'],
  ['deno', ''],
]

test.each(runs.filter(([runtime]) => inThisForm(runtime)))(
  'the installed package keeps messages in a file on %s %s',
  (runtime, thread) => expect(printed(runtime, thread)).toEqual(works),
)

test('the installed package says what it needs where SQLite is switched off', () =>
  expect(printed('node22', '', '--no-experimental-sqlite')).toEqual({
    code: 'inbox_unsupported',
    hint: expect.stringMatching(/^Run Node 22\.13 or later/),
  }))

function printed(runtime: Runtime, thread: '' | 'thread', ...flags: readonly string[]): unknown {
  const file = join(inject('consumer'), 'sqlite-inbox.js')
  writeFileSync(file, script)
  const path = join(newFolder('package'), 'inbox.db')
  const args = [...flags, ...(runtime === 'deno' ? ['run', '--allow-all'] : []), file, path, thread]
  return JSON.parse(
    execFileSync(runtimePath(runtime), args, { cwd: inject('consumer'), encoding: 'utf8', stdio: 'pipe' }),
  )
}
