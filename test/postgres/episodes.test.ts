/* Each row of the semantics of episodes, on a real server. The receiver's clock is that of the test, and that of the inbox is the real one. */
import { describe } from 'vitest'
import { hasPostgres } from '../once/servers.ts'
import { episodeRows } from '../when/episodes-rows.ts'
import type { Place } from '../when/episodes-scene.ts'
import { postgresPlace } from './place.ts'
import { sceneOfFile } from './scene.ts'

describe.skipIf(!hasPostgres)('on Postgres', () => {
  const scene = sceneOfFile()
  let number = 0
  /** Of all rows: each of its own would take all connections of the server. */
  let pool: ReturnType<typeof scene.newPool> | undefined

  async function place(): Promise<Place> {
    const schema = `episodes${(number += 1)}`
    await scene.prepare(schema)
    const { next, pending } = postgresPlace((pool ??= scene.newPool(20)), schema)
    return { next, pending }
  }

  episodeRows('and a receiver on a clock of the test', place, true, false)
})
