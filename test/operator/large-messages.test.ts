import { join } from 'node:path'
import { expect, test } from 'vitest'
import { spawnTarget } from '../conformance/spawn.ts'
import { programCommand, secret } from '../runtimes/targets.ts'
import { newFolder } from '../folder.ts'

const large = 'x'.repeat(900_000)
const kinds = ['WAIT', 'DEAD', 'DONE'] as const
const each = 12

test('looking at large messages costs a receiver with a small heap neither its life nor the time of live messages', async () => {
  const inbox = join(newFolder('large'), 'inbox.db')
  const heap = { NODE_OPTIONS: '--max-old-space-size=256' }
  await using target = await spawnTarget(
    programCommand('node24', join(import.meta.dirname, 'large-program.ts'), { INBOX: inbox, ...heap }),
  )
  const post = async (vin: string, text: string): Promise<number> => {
    const body = JSON.stringify({ data: { Odometer: 1, Name: text }, createdAt: '2026-05-01T00:00:00.000Z', vin })
    return (await fetch(`${target.url}/telemetry`, { method: 'POST', headers: { authorization: secret }, body })).status
  }
  // In turns: a handler that fails for many vehicles in a row would rest.
  for (let n = 0; n < each; n += 1) for (const kind of kinds) expect(await post(`${kind}${n}`, large)).toBe(200)
  await target.line(new RegExp(`^settled DONE${each - 1}$`))
  await target.line(new RegExp(`^dead ${each}$`))

  const ask = async (path: string): Promise<{ readonly text: string; readonly next: string | null }> => {
    const answer = await fetch(`${target.url}/inspector${path}`, { headers: { authorization: 'operator' } })
    expect(answer.status).toBe(200)
    const text = await answer.text()
    expect(text.length).toBeLessThan(2_500_000)
    return { text, next: (JSON.parse(text) as { next: string | null }).next }
  }
  /** Reads a list to its end, and returns what it says about each item. */
  const all = async (path: string): Promise<string> => {
    let said = ''
    for (let after = ''; ;) {
      const { text, next } = await ask(`${path}?limit=1000${after}`)
      said += text
      if (next === null) return said
      after = `&after=${next}`
    }
  }
  const idle = performance.now()
  let slowest = 0
  const live = new AbortController()
  const posting = (async () => {
    while (!live.signal.aborted) {
      const before = performance.now()
      expect(await post('LIVE', 'small')).toBe(200)
      slowest = Math.max(slowest, performance.now() - before)
    }
  })()

  const [messages, dead, states] = await Promise.all(['/messages', '/dead', '/vehicles'].map(all))
  for (const kind of kinds) for (let n = 0; n < each; n += 1) expect(messages).toContain(`"${kind}${n}"`)
  for (let n = 0; n < each; n += 1) expect(dead).toContain(`"DEAD${n}"`)
  for (let n = 0; n < each; n += 1) expect(states).toContain(`"DONE${n}"`)
  expect(messages).not.toContain('xxxx')
  await Promise.all(Array.from({ length: 6 }, () => ask('/messages?limit=1000')))

  const feeds = Array.from({ length: 10 }, () =>
    fetch(`${target.url}/inspector/feed`, { headers: { authorization: 'operator' } }),
  )
  // Nobody reads from these streams.
  for (const feed of await Promise.all(feeds)) expect(feed.status).toBe(200)
  for (let n = 0; n < each; n += 1) expect(await post(`DONE${n}`, large)).toBe(200)
  live.abort()
  await posting
  expect(slowest).toBeLessThan(Math.max(2_000, (performance.now() - idle) / 2))
  expect(await post('LIVE', 'at the end')).toBe(200)

  const [first] = (JSON.parse((await ask('/messages?limit=1')).text) as { messages: readonly { id: string }[] })
    .messages
  const one = await fetch(`${target.url}/inspector/messages/${first?.id}`, { headers: { authorization: 'operator' } })
  expect(await one.text()).toContain('"raw":{"data"')
})
