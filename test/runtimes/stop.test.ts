import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'vitest'
import { spawnTarget, type Target } from '../conformance/spawn.ts'
import { head, letIt, message, post, seen } from './client.ts'
import { rawConnection } from '../http/raw.ts'
import { appCommand } from './targets.ts'
import { newFolder } from '../folder.ts'

const stopping = /taking no more messages/

/** Sends SIGTERM. Everything after it happens while the server stops. */
async function terminate(target: Target): Promise<void> {
  target.kill('SIGTERM')
  await target.line(stopping)
}

describe.concurrent.each(['node24', 'bun', 'deno'] as const)('stopping on %s', (runtime) => {
  test('handles the accepted messages, prints the count, and lets the process end', async ({ expect }) => {
    await using target = await spawnTarget(await appCommand(runtime, { handlerMs: 200 }))
    expect(await post(target.url, 'V1')).toBe(200)
    expect(await post(target.url, 'V1')).toBe(200)
    target.kill('SIGTERM')
    expect(await target.line(/^closed/)).toMatch(/"left":0,"lost":0}$/)
    expect(await target.line(/^stats/)).toContain('"received":2,"handled":2,"lost":0')
    const closedAt = performance.now()
    expect(await target.exited).toEqual({ status: 0, signal: null })
    expect(performance.now() - closedAt).toBeLessThan(5_000)
  })

  test('receives a body that was still arriving when the signal came', async ({ expect }) => {
    await using target = await spawnTarget(await appCommand(runtime, {}))
    const body = message('V1')
    using client = await rawConnection(target.url, head(body.length) + body.slice(0, 10))
    // This answer comes over another connection. By then the server knows the first one.
    await seen(target.url)
    await terminate(target)
    await client.send(body.slice(10))
    expect(await client.whole).toContain('"text":"Success"')
    expect(await target.line(/^stats/)).toMatch('"handled":1,"lost":0')
    expect((await target.exited).status).toBe(0)
  })

  test('waits neither for silent connections nor for requests that never end', async ({ expect }) => {
    await using target = await spawnTarget(await appCommand(runtime, {}, { graceMs: 1_000 }))
    using silent = await rawConnection(target.url)
    using headless = await rawConnection(target.url, 'POST / HTTP/1.1\r\n')
    using endless = await rawConnection(target.url, `${head(500)}{"data"`)
    await seen(target.url)
    await terminate(target)
    expect(await target.exited).toEqual({ status: 0, signal: null })
    expect([silent, headless, endless]).toHaveLength(3)
  })

  test('gives up at the deadline, and prints how many messages are lost', async ({ expect }) => {
    await using target = await spawnTarget(await appCommand(runtime, { holdsHandlers: true }, { graceMs: 500 }))
    expect(await post(target.url, 'V1')).toBe(200)
    target.kill('SIGTERM')
    expect(await target.line(/^closed/)).toBe('closed {"handled":0,"left":0,"lost":1}')
  })

  test('a second signal ends the process at once', async ({ expect }) => {
    await using target = await spawnTarget(await appCommand(runtime, { holdsHandlers: true }, { graceMs: 60_000 }))
    expect(await post(target.url, 'V1')).toBe(200)
    await terminate(target)
    target.kill('SIGTERM')
    const { status, signal } = await target.exited
    expect(signal ?? status).toBe(runtime === 'deno' ? 143 : 'SIGTERM')
  })

  test('serves until delayBeforeCloseMs is over, and asks clients to close their connections', async ({ expect }) => {
    const command = await appCommand(runtime, { holdsHandlers: true }, { delayBeforeCloseMs: 600_000 })
    await using target = await spawnTarget(command)
    await terminate(target)
    expect(await post(target.url, 'V1')).toBe(200)
    await letIt(target.url, 'handle')
    await expect.poll(() => seen(target.url)).toMatchObject({ stats: { handled: 1 } })
    expect((await fetch(`${target.url}/seen`)).headers.get('connection')).toBe('close')
  })
})

test('one Ctrl+C on a program that `deno task` runs is one signal: it drains', async ({ expect }) => {
  const folder = newFolder('task')
  const target = await appCommand('deno', { handlerMs: 1_500 })
  const { command, args } = target
  const start = [command, ...args].map((part) => `"${part}"`).join(' ')
  writeFileSync(join(folder, 'deno.json'), JSON.stringify({ tasks: { start } }))
  // A terminal sends SIGINT to all processes of the group in front.
  await using started = await spawnTarget({ ...target, args: ['task', '--cwd', folder, 'start'], detached: true })
  expect(await post(started.url, 'V1')).toBe(200)
  process.kill(-started.pid, 'SIGINT')
  expect(await started.line(/^closed/)).toBe('closed {"handled":1,"left":0,"lost":0}')
})
