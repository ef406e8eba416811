/**
 * Counts the functions of this project that one message runs, from the socket until it is settled, with V8's precise coverage
 * between two messages after warm-up: `npm run bench -- path`.
 */
import type { Profiler } from 'node:inspector'
import { Session } from 'node:inspector/promises'
import { mkdtempSync, rmSync } from 'node:fs'
import { request } from 'node:http'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { serve } from '../adapters/node.ts'
import { sqliteInbox } from '../adapters/inbox/sqlite.ts'
import { createReceiver, type ReceiverOptions } from '../src/index.ts'

const root = fileURLToPath(new URL('..', import.meta.url))
const secret = 'a-long-random-value'
const warmUp = 2_000
const turns = 5

interface Path {
  readonly functions: number
  readonly files: number
  readonly calls: number
  readonly byFile: ReadonlyMap<string, readonly string[]>
}

async function measure(inbox: ReceiverOptions['inbox']): Promise<Path> {
  const receiver = createReceiver({ secret, ...(inbox === undefined ? {} : { inbox }) })
  receiver.on('data', (event) => event.data.BatteryLevel)
  const server = await serve(receiver, { port: 0, announce: false, signals: false })
  const session = new Session()
  session.connect()
  for (let index = 0; index < warmUp; index += 1) await post(server.port)
  await session.post('Profiler.enable')
  // Start it after the warm-up, because it does not count functions that the optimizing compiler inlines while it runs.
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })
  await post(server.port)
  await settled()
  let least: Path | undefined
  // Take the smallest count, because a timer of the receiver that fires meanwhile is not part of the path.
  for (let turn = 0; turn < turns; turn += 1) {
    await session.post('Profiler.takePreciseCoverage')
    await post(server.port)
    await settled()
    const { result } = await session.post('Profiler.takePreciseCoverage')
    const path = pathOf(result)
    if (least === undefined || path.functions < least.functions) least = path
  }
  await session.post('Profiler.stopPreciseCoverage')
  session.disconnect()
  await server.close()
  if (least === undefined) throw new Error('nothing was measured')
  return least
}

function pathOf(result: readonly Profiler.ScriptCoverage[]): Path {
  const byFile = new Map<string, string[]>()
  let calls = 0
  for (const { url, functions } of result) {
    const file = url.startsWith('file:') ? relative(root, fileURLToPath(url)) : ''
    if (!/^(src|adapters)\//.test(file)) continue
    for (const { functionName, ranges } of functions) {
      const count = ranges[0]?.count ?? 0
      if (count === 0) continue
      calls += count
      byFile.set(file, [...(byFile.get(file) ?? []), `${functionName || '(anonymous)'} ${count}`])
    }
  }
  return { functions: [...byFile.values()].flat().length, files: byFile.size, calls, byFile }
}

function post(port: number): Promise<void> {
  const body = JSON.stringify({
    vin: '0FLEETV14T0000004',
    createdAt: '2026-11-21T10:00:00Z',
    data: { BatteryLevel: 81.5 },
  })
  const headers = { authorization: secret, 'content-type': 'application/json', 'content-length': body.length }
  return new Promise((resolve, reject) => {
    const sent = request({ port, method: 'POST', path: '/', headers }, (response) => {
      response.resume().on('end', resolve)
    })
    sent.on('error', reject)
    sent.end(body)
  })
}

/** Waits until the message is settled. Asking the receiver would be counted too, and a message takes only milliseconds. */
function settled(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 300))
}

const folder = mkdtempSync(join(tmpdir(), 'fleethook-path-'))
try {
  const wanted: readonly (readonly [string, ReceiverOptions['inbox']])[] = [
    ['memory', undefined],
    ['SQLite', sqliteInbox({ path: join(folder, 'inbox.db') })],
  ]
  for (const [name, inbox] of wanted) {
    const { functions, files, calls, byFile } = await measure(inbox)
    if (process.argv.includes('--list'))
      for (const [file, names] of byFile) console.log(`${file}\n  ${names.join('\n  ')}`)
    console.log(`${name}: one message runs ${functions} functions in ${files} files (${calls} calls)`)
  }
} finally {
  rmSync(folder, { recursive: true, force: true })
}
