/* Receivers and handlers on Bun and Deno, with `pg`, on a real server. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { hasPostgres } from '../once/servers.ts'
import type { ServerRuntime } from '../runtimes/targets.ts'
import { clean, createLedger, load } from './ledger.ts'
import { bodyOf, type Scene, startScene } from './scene.ts'

describe.skipIf(!hasPostgres)('other runtimes', () => {
  let scene: Scene
  beforeAll(async () => {
    scene = await startScene()
  }, 120_000)
  afterAll(() => scene?.[Symbol.asyncDispose]())

  test.each<ServerRuntime>(['bun', 'deno'])(
    '%s receives and handles, and messages are written once while a process is killed and the server crashes',
    { timeout: 180_000 },
    async (runtime) => {
      const schema = `on_${runtime}`
      await scene.prepare(schema)
      await using ledger = await createLedger({ pool: scene.pool, schema, port: scene.server.port, leaseMs: 1_500 })
      const receiver = await ledger.begin('receive', { runtime })
      const killed = await ledger.begin('single', { runtime })
      await ledger.begin('batch', { runtime })
      const running = load(20, async (vehicle, n) => {
        const answer = await fetch(receiver.url, { method: 'POST', body: JSON.stringify(bodyOf(vehicle, n)) })
        await answer.arrayBuffer()
        return answer.status
      })
      await ledger.grows(100)
      await killed.stop('SIGKILL')
      await ledger.begin('single', { runtime })
      await ledger.grows(100)
      await scene.server.crash()
      await ledger.grows(100)
      const acked = await running.stop()
      await ledger.isDone()
      expect(await ledger.account(acked)).toEqual(clean)
      expect(running.counts.acked).toBeGreaterThan(300)
      for (const one of [...ledger.processes]) expect(await one.stop('SIGTERM')).toEqual({ status: 0, signal: null })
    },
  )
})
