import { afterAll, beforeAll, describe, test } from 'vitest'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { relayConformance } from '../conformance/relay-conformance.ts'
import { hasPostgres } from '../once/servers.ts'
import { type Scene, startScene } from './scene.ts'

describe.skipIf(!hasPostgres)('postgresInbox is an inbox whose messages another system keeps', () => {
  let scene: Scene
  const prepared = new Map<string, Promise<void>>()
  beforeAll(async () => {
    scene = await startScene()
  }, 120_000)
  afterAll(() => scene?.[Symbol.asyncDispose]())

  const checks = relayConformance({
    async inbox(name) {
      const schema = name.replaceAll('-', '_')
      const known = prepared.get(schema) ?? scene.prepare(schema)
      prepared.set(schema, known)
      await known
      return postgresInbox({ db: scene.newPool(), schema, leaseMs: 3_000 })
    },
  })
  for (const { name, run } of checks) test(name, { timeout: 60_000 }, run)
})
