import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createReceiver, type Histogram, memoryInbox } from 'fleethook'
import { metricsRoutes, metricsText } from 'fleethook/metrics'
import { describe, expect, test } from 'vitest'
import { data, gates, scene } from '../dispatch/scene.ts'

const vin = '0FLEETV14T0000004'
const commitMs: Histogram = { bounds: [1, 10, 1_000], counts: [5, 3, 0, 1], sum: 2_040 }

/** A receiver whose inbox tells everything that an inbox can tell. */
function measured(): ReturnType<typeof scene> {
  return scene({
    retry: { attempts: 1 },
    inbox: (settings) => {
      const inbox = memoryInbox()(settings)
      const kafka = { lag: { 0: 7, 23: 0 }, spooled: 3 }
      return { ...inbox, stats: () => ({ oldestWaitingMs: 0, ...inbox.stats?.(), commitMs, ...kafka }) }
    },
  })
}

/** Metrics by name, each with its samples. */
function samples(text: string): ReadonlyMap<string, string> {
  return new Map(
    text
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('#'))
      .map((line) => [line.slice(0, line.lastIndexOf(' ')), line.slice(line.lastIndexOf(' ') + 1)]),
  )
}

describe('metricsText', () => {
  test('has what stats() counts, in seconds and bytes', async () => {
    const { receiver, post, clock } = measured()
    const gate = gates()
    receiver.on('data', () => gate.wait('data')).on('state', () => Promise.reject(new Error('no')))
    await post(data(vin, 1))
    await post({ vin, createdAt: '2024-02-24T04:58:44Z', state: 'online' })
    await post('no json')
    const receivedAt = clock.now()
    await clock.advance(2_500)
    const found = samples(metricsText(receiver))
    expect(Object.fromEntries(found)).toMatchObject({
      'fleethook_messages_received_total{fleethook_topic="data"}': '1',
      'fleethook_messages_received_total{fleethook_topic="alerts"}': '0',
      'fleethook_requests_refused_total{error_type="body_not_json"}': '1',
      'fleethook_requests_refused_total{error_type="connections_exceeded"}': '0',
      fleethook_pending_messages: '2',
      fleethook_pending_limit: '10000',
      fleethook_pending_oldest_age_seconds: '2.5',
      fleethook_last_received_timestamp_seconds: String(receivedAt / 1000),
      fleethook_running: '1',
      fleethook_lanes: '1',
      fleethook_dead_letters: '0',
      'fleethook_lag_messages{messaging_destination_partition_id="0"}': '7',
      fleethook_spooled_messages: '3',
      'fleethook_inbox_commit_duration_seconds_bucket{le="0.001"}': '5',
      'fleethook_inbox_commit_duration_seconds_bucket{le="1"}': '8',
      'fleethook_inbox_commit_duration_seconds_bucket{le="+Inf"}': '9',
      fleethook_inbox_commit_duration_seconds_sum: '2.04',
      fleethook_inbox_commit_duration_seconds_count: '9',
    })
    gate.open('data')
    await clock.advance(1)
    const later = Object.fromEntries(samples(metricsText(receiver)))
    expect(later).toMatchObject({
      'fleethook_messages_settled_total{fleethook_outcome="handled"}': '1',
      'fleethook_messages_settled_total{fleethook_outcome="dead"}': '1',
      fleethook_pending_oldest_age_seconds: '0',
      fleethook_dead_letters: '1',
    })
  })

  test('never has a VIN or a name that came over the wire', async () => {
    const { receiver, post } = measured()
    await post(data(vin, 1, { Gear: { oddValue: 5 }, BatteryLevel: { text: 'x' } }))
    await post({ vin, createdAt: 'x', [`to"p\nic`]: 5 })
    const text = metricsText(receiver)
    expect(receiver.stats().drifted).toBeGreaterThan(0)
    for (const told of [vin, 'oddValue', 'Gear', 'to"p']) expect(text).not.toContain(told)
  })

  test('every line is one of the format 0.0.4, and each metric has its help and type', () => {
    const lines = metricsText(measured().receiver).trimEnd().split('\n')
    for (const line of lines) {
      expect(line).toMatch(
        /^(# HELP fleethook_\w+ .+|# TYPE fleethook_\w+ (counter|gauge|histogram)|fleethook_\w+(\{\w+="[\w+.]+"\})? [\d.e+-]+)$/,
      )
    }
    expect(lines.filter((line) => line.startsWith('# HELP'))).toHaveLength(
      lines.filter((line) => line.startsWith('# TYPE')).length,
    )
  })
})

describe('metricsRoutes', () => {
  test('ask for their secret, as it is or after Bearer', async () => {
    const app = metricsRoutes(createReceiver({ secret: 'the-webhook' }), { secret: 'of-the-metrics' })
    const ask = (authorization?: string): Promise<Response> =>
      Promise.resolve(app.request('/', { headers: authorization === undefined ? {} : { authorization } }))
    expect((await ask()).status).toBe(401)
    expect((await ask('the-webhook')).status).toBe(403)
    expect((await ask('Bearer the-webhook')).status).toBe(403)
    for (const authorization of ['of-the-metrics', 'Bearer of-the-metrics']) {
      const answer = await ask(authorization)
      expect(answer.status).toBe(200)
      expect(answer.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8')
      expect(await answer.text()).toContain('fleethook_pending_messages 0')
    }
  })

  test('are open to everybody only when that is written out', async () => {
    const receiver = createReceiver({ secret: 'the-webhook' })
    expect(() => metricsRoutes(receiver, { secret: undefined })).toThrow(/secret/)
    expect(() => metricsRoutes(receiver, { secret: '' })).toThrow(/secret/)
    expect((await metricsRoutes(receiver, { secret: false }).request('/')).status).toBe(200)
  })
})

describe('the page and the examples', () => {
  const folder = 'examples/observability'
  const table = new Set(
    [...readFileSync('docs/metrics.md', 'utf8').matchAll(/^\| `(fleethook_\w+)`/gm)].map(([, name]) => name),
  )

  test('the table of the page has exactly the metrics of the text', () => {
    const names = [...metricsText(measured().receiver).matchAll(/^# TYPE (\w+)/gm)].map(([, name]) => name)
    expect([...table].toSorted()).toEqual(names.toSorted())
  })

  test.each(['alerts.yml', 'dashboard.json', 'alerts.test.yml'])(
    '%s names only metrics and labels of the table',
    (file) => {
      const text = readFileSync(`${folder}/${file}`, 'utf8')
      const names = [...text.matchAll(/\bfleethook_\w+/g)].map(([name]) => name.replace(/_(bucket|sum|count)$/, ''))
      const labels = ['fleethook_topic', 'fleethook_outcome']
      expect(names.length).toBeGreaterThan(5)
      expect(names.filter((name) => !table.has(name) && !labels.includes(name))).toEqual([])
      const given = new Set(
        [...metricsText(measured().receiver).matchAll(/\{(\w+)="([\w.+]+)"\}/g)].map(([, , value]) => value),
      )
      const asked = [...text.matchAll(/(?:fleethook_topic|fleethook_outcome|error_type)=~?\\?["']([\w|]+)/g)]
      for (const [, values = ''] of asked) for (const value of values.split('|')) expect(given).toContain(value)
    },
  )

  test('the dashboard is JSON with a panel for each expression', () => {
    const dashboard: unknown = JSON.parse(readFileSync(`${folder}/dashboard.json`, 'utf8'))
    expect(dashboard).toMatchObject({ title: expect.any(String), panels: expect.any(Array) })
  })

  const promtool = runs('promtool')
  test.skipIf(!promtool)('promtool accepts the metrics, the rules and their tests', async () => {
    const { receiver, post } = measured()
    await post(data(vin, 1))
    execFileSync('promtool', ['check', 'metrics'], { input: metricsText(receiver), stdio: ['pipe', 'pipe', 'pipe'] })
    execFileSync('promtool', ['check', 'rules', `${folder}/alerts.yml`], { stdio: 'pipe' })
    execFileSync('promtool', ['test', 'rules', `${folder}/alerts.test.yml`], { stdio: 'pipe' })
  })
})

function runs(program: string): boolean {
  try {
    execFileSync(program, ['--version'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
}
