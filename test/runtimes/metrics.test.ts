import { describe, test } from 'vitest'
import { spawnTarget } from '../conformance/spawn.ts'
import { post, seen } from './client.ts'
import { appCommand, everywhere } from './targets.ts'

describe.concurrent.each(everywhere)('on %s', (runtime) => {
  test('metricsRoutes has the counts of the receiver, for those who have its secret', async ({ expect }) => {
    await using target = await spawnTarget(await appCommand(runtime, {}))
    expect(await post(target.url, 'V1')).toBe(200)
    await expect.poll(() => seen(target.url)).toMatchObject({ stats: { handled: 1 } })
    const scrape = (authorization: string): Promise<Response> =>
      fetch(`${target.url}/metrics`, { headers: { authorization } })
    const response = await scrape('Bearer a-secret-of-the-metrics')
    expect(response.status).toBe(200)
    expect(response.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8')
    const lines = (await response.text()).split('\n')
    expect(lines).toContain('fleethook_messages_received_total{fleethook_topic="data"} 1')
    expect(lines).toContain('fleethook_messages_settled_total{fleethook_outcome="handled"} 1')
    expect((await scrape('Bearer a-guess')).status).toBe(403)
  })
})
