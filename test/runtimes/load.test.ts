import { Agent, request } from 'node:http'
import { describe, expect, test } from 'vitest'
import { spawnTarget } from '../conformance/spawn.ts'
import { message, seen } from './client.ts'
import { appCommand, secret } from './targets.ts'

const connections = 32
const vehicles = 50

/** Posts over many connections at once until the server is gone, and counts the answers. */
function pour(url: string): { readonly answers: Map<number, number>; readonly over: Promise<unknown> } {
  const agent = new Agent({ keepAlive: true, maxSockets: connections })
  const answers = new Map<number, number>()
  let sent = 0

  const send = (): Promise<boolean> =>
    new Promise((resolve) => {
      const posting = request(url, { agent, method: 'POST', headers: { authorization: secret } }, (response) => {
        const { statusCode = 0 } = response
        response.resume().once('end', () => {
          answers.set(statusCode, (answers.get(statusCode) ?? 0) + 1)
          resolve(true)
        })
      })
      // A connection that closed between two messages does not mean that the server is gone. A refused one does.
      posting.once('error', (error) => resolve(!('code' in error && error.code === 'ECONNREFUSED')))
      sent += 1
      posting.end(message(`V${sent % vehicles}`, sent))
    })
  const loop = async (): Promise<void> => {
    while (await send());
  }
  return { answers, over: Promise.all(Array.from({ length: connections }, loop)).finally(() => agent.destroy()) }
}

describe.each(['node24', 'bun', 'deno'] as const)('SIGTERM under load on %s', (runtime) => {
  test('everything that was acknowledged is handled', async () => {
    await using target = await spawnTarget(await appCommand(runtime, { handlerMs: 5 }))
    const { answers, over } = pour(target.url)
    // Each connection can end before it has the answer of its last message.
    await expect
      .poll(() => seen(target.url), { timeout: 10_000 })
      .toSatisfy(({ stats }) => stats.received >= 500 + connections)
    target.kill('SIGTERM')
    await over
    const stopped = await target.line(/^stats/)
    await target.exited

    const { received, handled, lost }: Record<string, number> = JSON.parse(stopped.slice('stats '.length))
    const acknowledged = answers.get(200) ?? 0
    expect(acknowledged).toBeGreaterThanOrEqual(500)
    expect({ handled, lost }).toEqual({ handled: received, lost: 0 })
    // A message can be accepted without its answer arriving. The opposite must not happen.
    expect(received).toBeGreaterThanOrEqual(acknowledged)
    expect([...answers.keys()].filter((status) => status !== 200 && status !== 503)).toEqual([])
  })
})
