import { gzipSync } from 'node:zlib'
import { createReceiver, memoryInbox, type Receiver } from 'fleethook'
import { sqliteInbox, type SqliteInboxOptions } from 'fleethook/inbox/sqlite'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { remember } from './ways.ts'
import { newFolder } from '../folder.ts'

const secret = 'a-long-random-value'
const path = '/services/collector/event'
const relayed = (n: number, event: unknown = { BatteryLevel: n % 100, Name: 'x'.repeat(100) }): string =>
  JSON.stringify({ time: 1_795_255_200, event, source: `V${n % 50}`, sourcetype: 'maker:telemetry:data' })
/** What the relays of common collectors send at once by default. */
const events = Array.from({ length: 10_598 }, (_, n) => relayed(n))
const batch = events.join('\n')

interface Posted {
  readonly status: number
  readonly error?: string
  readonly 'invalid-event-number'?: number
  readonly hint?: string
}

async function post(receiver: Receiver, body: string | Uint8Array<ArrayBuffer>, to: string = path): Promise<Posted> {
  const headers = {
    authorization: `Splunk ${secret}`,
    ...(typeof body === 'string' ? {} : { 'content-encoding': 'gzip' }),
  }
  const answer = await receiver.fetch(new Request(`http://localhost${to}`, { method: 'POST', headers, body }))
  return { status: answer.status, ...JSON.parse(await answer.text()) }
}

describe('the batches of a relay are taken as they come, with the default limits', () => {
  const inboxes = {
    memory: undefined,
    sqlite: (options?: Partial<SqliteInboxOptions>) =>
      sqliteInbox({ path: join(newFolder('relays'), 'inbox.db'), ...options }),
  }
  const bodies: Readonly<Record<string, string | Uint8Array<ArrayBuffer>>> = {
    plain: batch,
    gzip: gzipSync(batch),
    'gzip of one member for each chunk': new Uint8Array(
      Buffer.concat([0, 3_000, 6_000, 9_000].map((from) => gzipSync(events.slice(from, from + 3_000).join('\n')))),
    ),
  }

  test.each(Object.keys(bodies).flatMap((how) => Object.keys(inboxes).map((inbox) => [how, inbox] as const)))(
    '%s, inbox: %s',
    async (how, kind) => {
      expect(batch.length).toBeGreaterThan(2_000_000)
      const inbox = kind === 'sqlite' ? inboxes.sqlite() : undefined
      const receiver = createReceiver({ secret, log: remember(), ...(inbox === undefined ? {} : { inbox }) })
      let handled = 0
      receiver.on('data', () => void (handled += 1))
      expect(await post(receiver, bodies[how] ?? '')).toMatchObject({ status: 200 })
      await expect.poll(() => handled).toBe(events.length)
      await receiver.drain()
    },
    180_000,
  )

  test('but not beyond 8 MiB, and one message of the service not beyond 1 MiB', async () => {
    const receiver = createReceiver({ secret, log: remember() })
    const over = relayed(0, { Name: 'x'.repeat(8 * 1_048_576) })
    expect(await post(receiver, over)).toMatchObject({ status: 413, hint: expect.stringContaining('8388608 bytes') })
    expect(await post(receiver, gzipSync(over))).toMatchObject({ status: 413 })
    expect(await post(receiver, batch, '/')).toMatchObject({ status: 413, hint: expect.stringContaining('1048576') })
    await receiver.drain()
  })

  test('`limits.bodyBytes` holds on every path', async () => {
    const receiver = createReceiver({ secret, log: remember(), limits: { bodyBytes: 1_000_000 } })
    expect(await post(receiver, batch)).toMatchObject({ status: 413 })
    await receiver.drain()
  })

  test.each([
    ['`limits.pendingBytes` (1000000)', 'memory', { pendingBytes: 1_000_000 }],
    ['`limits.pendingBytes` (1000000)', 'sqlite', { pendingBytes: 1_000_000 }],
    ['`maxBytes` (8388608)', 'sqlite', { bodyBytes: 16 * 1_048_576 }],
  ] as const)(
    'a body that never fits into %s is a 413 and a gap, since a relay sends it again after a 503; inbox: %s',
    async (limit, kind, limits) => {
      const inbox = kind === 'sqlite' ? inboxes.sqlite({ maxBytes: 8_388_608 }) : memoryInbox()
      const receiver = createReceiver({ secret, log: remember(), limits, inbox })
      const gaps: unknown[] = []
      receiver.on('gap', ({ reason }) => void gaps.push(reason))
      const hint = expect.stringContaining(limit)
      const body = limit.includes('maxBytes') ? relayed(0, { Name: 'x'.repeat(7_000_000) }) : batch
      expect(await post(receiver, relayed(1))).toMatchObject({ status: 200 })
      expect(await post(receiver, body)).toMatchObject({ status: 413, error: 'body_too_large', hint })
      expect(receiver.stats().refused).toMatchObject({ body_too_large: 1 })
      await expect.poll(() => gaps).toContain('body_too_large')
      await expect.poll(() => receiver.stats().pending.messages).toBe(0)
      await receiver.drain()
    },
  )
})
