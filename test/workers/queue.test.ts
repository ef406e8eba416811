import { describe, test } from 'vitest'
import { createReceiver } from '../../src/index.ts'
import { queueInbox } from '../../adapters/inbox/queue.ts'
import { spawnTarget, type Target } from '../conformance/spawn.ts'
import { post } from '../runtimes/client.ts'
import { kill, storedWorker } from './command.ts'
import { type Entry, startLog } from './log.ts'
import type { DurableSettings } from './programs/durable.ts'
import { queuedSource } from './programs/queued.ts'

/** A Worker in miniflare, with a queue and a dead letter queue, and what its handlers saw. */
async function started(
  settings: DurableSettings,
): Promise<AsyncDisposable & { readonly target: Target; readonly entries: readonly Entry[] }> {
  const log = await startLog()
  const worker = await storedWorker(queuedSource(settings), log.port)
  const target = await spawnTarget(worker.commands.miniflare)
  return {
    target,
    entries: log.entries,
    async [Symbol.asyncDispose]() {
      await kill(target)
      worker[Symbol.dispose]()
      await log[Symbol.asyncDispose]()
    },
  }
}

const patiently = { timeout: 15_000 }

describe.concurrent('messages are kept on a queue, and handled by its consumer', () => {
  test('each once when nothing fails', async ({ expect }) => {
    await using running = await started({})
    for (let number = 1; number <= 30; number++) expect(await post(running.target.url, 'V1', number)).toBe(200)
    await expect.poll(() => running.entries.length, patiently).toBe(30)
    expect(new Set(running.entries.map(({ number }) => number)).size).toBe(30)
    expect(running.entries.every(({ attempt, redelivered }) => attempt === 1 && !redelivered)).toBe(true)
  })

  test('a body of more messages than one call takes arrives whole', async ({ expect }) => {
    await using running = await started({})
    const body = Array.from({ length: 250 }, (_, n) => ({
      ...{ data: { BatteryLevel: n }, createdAt: '2026-05-01T00:00:00Z', vin: `V${n}` },
    }))
    const answer = await fetch(running.target.url, {
      method: 'POST',
      headers: { authorization: 'a-secret-of-the-tests' },
      body: JSON.stringify(body),
    })
    expect(answer.status).toBe(200)
    await expect.poll(() => new Set(running.entries.map(({ vin }) => vin)).size, patiently).toBe(250)
  })

  test('a message that fails returns with its attempt number, and after the last attempt it goes to the dead letter queue', async ({
    expect,
  }) => {
    await using running = await started({
      failing: { LATE: 3, NEVER: 9 },
      receiver: { retry: { attempts: 3, minMs: 1, maxMs: 1 } },
    })
    for (const vin of ['LATE', 'NEVER', 'OK']) expect(await post(running.target.url, vin, 1)).toBe(200)
    await expect
      .poll(() => running.entries.toSorted((a, b) => (a.vin < b.vin ? -1 : 1)), patiently)
      .toMatchObject([
        { vin: 'LATE', attempt: 3, redelivered: true },
        { vin: 'NEVER', number: 'dead' },
        { vin: 'OK', attempt: 1, redelivered: false },
      ])
    await running.target.line(/a message of topic data is a dead letter after 3 attempts/)
  })

  test('a message over what the platform takes is refused with 413 before anything of its body is kept, and is a gap', async ({
    expect,
  }) => {
    await using running = await started({})
    const small = { data: { BatteryLevel: 1 }, createdAt: '2026-05-01T00:00:00Z', vin: 'V1' }
    const large = { ...small, data: { Note: 'x'.repeat(127_000) } }
    const answer = await fetch(running.target.url, {
      method: 'POST',
      headers: { authorization: 'a-secret-of-the-tests' },
      body: JSON.stringify([small, large]),
    })
    expect(answer.status).toBe(413)
    expect(await answer.json()).toMatchObject({
      error: 'body_too_large',
      hint: expect.stringMatching(/up to 127000 bytes and one of these has 127\d+/),
    })
    expect(await post(running.target.url, 'V2', 2)).toBe(200)
    // Nothing of the body is handled. The vehicle of the large message has a gap.
    const handled = (): readonly string[] => running.entries.map(({ vin, number }) => `${vin} ${number}`).toSorted()
    await expect.poll(handled, patiently).toEqual(['V1 gap', 'V2 2'])
  })
})

describe('an option that a queue cannot keep', () => {
  const inbox = queueInbox({ queue: () => ({ send: async () => {}, sendBatch: async () => {} }) })

  test("order: 'vin' is refused at construction, with the reason", ({ expect }) => {
    const receiver = (): unknown => createReceiver({ secret: 'a', inbox })
    expect(receiver).toThrow(
      expect.objectContaining({
        code: 'option_invalid',
        message: expect.stringMatching(/keeps no order/),
        hint: expect.stringMatching(/order: 'none'/),
      }),
    )
  })

  test("ack: 'handled' is refused at construction", ({ expect }) => {
    expect(() => createReceiver({ secret: 'a', inbox, order: 'none', ack: 'handled' })).toThrow(
      expect.objectContaining({ code: 'ack_unavailable' }),
    )
  })
})
