import { afterAll, beforeAll, describe, test, vi } from 'vitest'
import { postgresInbox } from 'fleethook/inbox/postgres'
import { relayConformance } from '../conformance/relay-conformance.ts'
import { few } from '../form.ts'
import { type DatabaseServer, hasPgBouncer, hasPostgres, startPgBouncer } from '../once/servers.ts'
import { type Scene, startScene } from './scene.ts'

describe.skipIf(!hasPostgres).each(few(['on a server', 'behind PgBouncer in transaction mode'] as const, 1))(
  'postgresInbox is an inbox whose messages another system keeps, %s',
  (where) => {
    let scene: Scene
    let bouncer: DatabaseServer | undefined
    const prepared = new Map<string, Promise<void>>()
    beforeAll(async () => {
      scene = await startScene()
      if (where === 'on a server' || !hasPgBouncer) return
      const { port } = (bouncer = await startPgBouncer(scene.server))
      await vi.waitFor(() => scene.newPool(1, port).query('SELECT 1'), { timeout: 60_000, interval: 100 })
    })
    afterAll(async () => {
      await bouncer?.[Symbol.asyncDispose]()
      await scene?.[Symbol.asyncDispose]()
    })

    const checks = relayConformance({
      async inbox(name) {
        const schema = name.replaceAll('-', '_')
        const known = prepared.get(schema) ?? scene.prepare(schema)
        prepared.set(schema, known)
        await known
        return postgresInbox({ db: scene.newPool(3, bouncer?.port), schema, leaseMs: 3_000 })
      },
    })
    for (const { name, run } of checks) test.skipIf(where !== 'on a server' && !hasPgBouncer)(name, run)
  },
)
