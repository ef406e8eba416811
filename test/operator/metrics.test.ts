import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createReceiver, memoryInbox } from 'fleethook'
import type { Histogram } from 'fleethook/extend'
import { metricsRoutes, metricsText } from 'fleethook/metrics'
import { operatorRoutes } from 'fleethook/operator'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import type { Hono } from 'hono'
import { describe, expect, test, vi } from 'vitest'
import { parse } from 'yaml'
import * as z from 'zod/mini'
import { page } from '../../scripts/metrics.ts'
import { hostedBy } from '../../src/receiver/hosted.ts'
import { data, gates, scene } from '../dispatch/scene.ts'
import { createFiles } from '../inbox/sqlite-files.ts'

const files = createFiles()

const vin = '0FLEETV14T0000004'
const commitMs: Histogram = { bounds: [1, 10, 1_000], counts: [5, 3, 0, 1], sum: 2_040 }

/** A receiver whose inbox tells everything that an inbox can tell. */
function measured(options: Parameters<typeof scene>[0] = {}): ReturnType<typeof scene> {
  return scene({
    ...options,
    retry: { attempts: 1 },
    inbox: (settings) => {
      const inbox = memoryInbox()(settings)
      const kafka = { lag: { 0: 7, 23: 0 }, meanwhile: { messages: 3, bytes: 30, deadLetters: 0, awayMs: 5_000 } }
      const postgres = { deadRows: 12, oldestSnapshotMs: 1_500 }
      return { ...inbox, stats: () => ({ oldestWaitingMs: 0, ...inbox.stats?.(), commitMs, ...kafka, ...postgres }) }
    },
  })
}

/** The text of a receiver that has handled a message, so that there is every metric. */
async function everything(options: Parameters<typeof scene>[0] = {}): Promise<string> {
  const { receiver, post, clock } = measured(options)
  Object.assign(hostedBy(receiver)?.reports ?? {}, { certificateUntilMs: 1_800_000_000_000 })
  metricsText(receiver)
  receiver.on('data', function save() {})
  await post(data(vin, 1))
  await clock.advance(1)
  return metricsText(receiver, { missing: { last: () => ({ at: new Date(0), vehicles: [] }) } })
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
      fleethook_inbox_used_ratio: '0.00004',
      fleethook_pending_oldest_age_seconds: '2.5',
      fleethook_last_received_timestamp_seconds: String(receivedAt / 1000),
      fleethook_running: '1',
      fleethook_lanes: '1',
      fleethook_dead_letters: '0',
      'fleethook_lag_messages{messaging_destination_partition_id="0"}': '7',
      fleethook_meanwhile_messages: '3',
      fleethook_server_away_seconds: '5',
      fleethook_inbox_dead_rows: '12',
      fleethook_inbox_snapshot_age_seconds: '1.5',
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

  test('has the times of each handler by its name or place, from the first call on', async () => {
    const { receiver, post, clock } = scene({ retry: { attempts: 1 } })
    const gate = gates()
    metricsText(receiver)
    receiver
      .on('data', async function save() {
        await gate.wait('data')
      })
      .on('data', () => {})
      .on(
        'state',
        Object.defineProperty(() => Promise.reject(new Error('no')), 'name', { value: 'to $db' }),
      )
      .batch('data', { size: 1, withinMs: 0 }, function insert() {
        throw new Error('no')
      })
    await post(data(vin, 1))
    await post({ vin: 'B', createdAt: '2024-02-24T04:58:44Z', state: 'online' })
    await clock.advance(300)
    gate.open('data')
    await clock.advance(1)
    const text = metricsText(receiver)
    const found = Object.fromEntries(samples(text))
    const name = 'fleethook_handler_duration_seconds'
    expect(found).toMatchObject({
      [`${name}_bucket{fleethook_handler="save",le="0.25"}`]: '0',
      [`${name}_bucket{fleethook_handler="save",le="0.5"}`]: '1',
      [`${name}_bucket{fleethook_handler="save",le="+Inf"}`]: '1',
      [`${name}_sum{fleethook_handler="save"}`]: '0.3',
      [`${name}_count{fleethook_handler="save"}`]: '1',
      [`${name}_count{fleethook_handler="to $db"}`]: '1',
      [`${name}_count{fleethook_handler="insert"}`]: '1',
    })
    expect(text).toMatch(/_count\{fleethook_handler="metrics\.test\.ts:\d+"\} 1\n/)
    expect(text.match(/^# TYPE fleethook_handler_duration_seconds histogram$/gm)).toHaveLength(1)
  })

  test('counts a run that its time limit ended, and messages that were settled', async () => {
    const { receiver, post, clock } = scene({ timeoutMs: 2_000, retry: { attempts: 2, minMs: 10, maxMs: 10 } })
    metricsText(receiver)
    let runs = 0
    receiver.on('data', function slow() {
      runs += 1
      return runs === 1 ? new Promise(() => {}) : undefined
    })
    await post(data(vin, 1))
    await clock.advance(3_000)
    const found = Object.fromEntries(samples(metricsText(receiver)))
    expect(found).toMatchObject({
      'fleethook_handler_duration_seconds_sum{fleethook_handler="slow"}': '2',
      'fleethook_handler_duration_seconds_count{fleethook_handler="slow"}': '2',
      'fleethook_message_lag_seconds_count{fleethook_topic="data"}': '1',
    })
  })

  test('names a hundred handlers, and those beyond them `other`', async () => {
    const { receiver, post, clock } = scene()
    metricsText(receiver)
    for (let at = 0; at < 103; at++)
      receiver.on(
        'data',
        Object.defineProperty(() => {}, 'name', { value: `h${at}` }),
      )
    for (const number of [1, 2]) await post(data(vin, number))
    await clock.advance(1)
    const counts = [...samples(metricsText(receiver))].filter(([name]) =>
      name.startsWith('fleethook_handler_duration_seconds_count'),
    )
    expect(counts).toHaveLength(101)
    expect(counts).toContainEqual(['fleethook_handler_duration_seconds_count{fleethook_handler="other"}', '6'])
  })

  test('counts the handlers whose circuit breaker is open', async () => {
    const { receiver, post, clock } = scene()
    let isAway = true
    receiver.on('data', () => (isAway ? Promise.reject(new Error('no')) : undefined))
    await post([1, 2, 3, 4, 5].map((n) => data(`A${n}`, 1)))
    await clock.advance(1)
    expect(metricsText(receiver)).toContain('\nfleethook_handlers_paused 1\n')
    isAway = false
    await clock.advance(5_000)
    expect(metricsText(receiver)).toContain('\nfleethook_handlers_paused 0\n')
  })

  test('never has a VIN or a name that came over the wire', async () => {
    const { receiver, post } = measured()
    await post(data(vin, 1, { Gear: { oddValue: 5 }, BatteryLevel: { text: 'x' } }))
    await post({ vin, createdAt: 'x', [`to"p\nic`]: 5 })
    const text = metricsText(receiver)
    expect(receiver.stats().drifted).toBeGreaterThan(0)
    for (const told of [vin, 'oddValue', 'Gear', 'to"p']) expect(text).not.toContain(told)
  })

  test('every line is one of the format 0.0.4, and each metric has its help and type', async () => {
    const lines = (await everything()).trimEnd().split('\n')
    for (const line of lines) {
      expect(line).toMatch(
        /^(# HELP fleethook_\w+ .+|# TYPE fleethook_\w+ (counter|gauge|histogram)|fleethook_\w+(\{\w+="[\w+.]+"(,\w+="[\w+.]+")*\})? [\d.e+-]+)$/,
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

  test('say nothing about a secret that is right, and speak of themselves about one that is not', async () => {
    const told: unknown[] = []
    vi.spyOn(console, 'error').mockImplementation((...line: unknown[]) => void told.push(line))
    const receiver = createReceiver({ secret: 'the-webhook' })
    const metrics = metricsRoutes(receiver, { secret: 'of-the-metrics' })
    const operator = operatorRoutes(receiver, { secret: 'of-the-operators' })
    const ask = async (
      app: { readonly request: Hono['request'] | ReturnType<typeof metricsRoutes>['request'] },
      path: string,
      authorization: string,
    ): Promise<string> => (await app.request(path, { headers: { authorization } })).text()
    await ask(metrics, '/', 'Bearer of-the-metrics')
    expect(told).toEqual([])
    const how = 'Send the secret of metricsRoutes in the header Authorization, as it is or after Bearer.'
    for (const wrong of ['Bearer the-webhook', 'the-webhook', 'Basic x'])
      expect(JSON.parse(await ask(metrics, '/', wrong))).toMatchObject({ hint: how })
    expect(told).toEqual([])
    await ask(metrics, '/', 'Token of-the-metrics')
    await ask(operator, '/stats', 'Bearer of-the-operators')
    expect(told.join('\n')).toMatch(
      /requests to metricsRoutes are refused although their secret is right: the header has Token .*after Bearer\.[^]*requests to operatorRoutes .* Bearer as its scheme word/,
    )
    vi.restoreAllMocks()
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
  const listed = new Set(
    [...readFileSync('docs/observing.md', 'utf8').matchAll(/^- `(fleethook_\w+)`/gm)].map(([, name]) => name),
  )

  test('the page is what `npm run generate -- metrics` makes', async () => {
    expect((await page()).get('docs/observing.md')).toBe(readFileSync('docs/observing.md', 'utf8'))
  })

  test('the page lists exactly the metrics of the text', async () => {
    const text = (await everything()) + metricsText(measured({ secret: 'x' }).receiver)
    const names = new Set([...text.matchAll(/^# TYPE (\w+)/gm)].map(([, name]) => name))
    expect([...listed].toSorted()).toEqual([...names].toSorted())
  })

  test.each(['alerts.yml', 'dashboard.json', 'alerts.test.yml'])(
    '%s names only metrics of the page, and labels',
    (file) => {
      const text = readFileSync(`${folder}/${file}`, 'utf8')
      const names = [...text.matchAll(/\bfleethook_\w+/g)].map(([name]) => name.replace(/_(bucket|sum|count)$/, ''))
      const labels = ['fleethook_topic', 'fleethook_outcome', 'fleethook_handler']
      expect(names.length).toBeGreaterThan(5)
      expect(names.filter((name) => !listed.has(name) && !labels.includes(name))).toEqual([])
      const given = new Set(
        [...metricsText(measured().receiver).matchAll(/\{(\w+)="([\w.+]+)"\}/g)].map(([, , value]) => value),
      )
      const asked = [...text.matchAll(/(?:fleethook_topic|fleethook_outcome|error_type)=~?\\?["']([\w|]+)/g)]
      for (const [, values = ''] of asked) for (const value of values.split('|')) expect(given).toContain(value)
    },
  )

  test('an alert fires when the receiver is gone, with which the series of all others end', () => {
    const { scrape_configs: jobs } = scrapeForm.parse(parse(readFileSync(`${folder}/prometheus.yml`, 'utf8')))
    const { groups } = alertsForm.parse(parse(readFileSync(`${folder}/alerts.yml`, 'utf8')))
    const rules = groups.flatMap((group) => group.rules)
    for (const { job_name: job } of jobs) {
      const up = `up{job="${job}"}`
      const gone = rules.filter(({ expr }) => expr === `${up} == 0 or absent(${up})`)
      expect(gone.map(({ labels }) => labels['severity'])).toEqual(['critical'])
      // Whoever copies the configuration from the page has the same job.
      expect(readFileSync('docs/observing.md', 'utf8')).toContain(`- job_name: ${job}\n`)
    }
  })

  test.each(['memoryInbox', 'sqliteInbox'])(
    'with %s, no metric is missing whose help does not say where it is',
    async (of) => {
      const path = files.path()
      const { receiver, post, clock } = scene({ inbox: of === 'memoryInbox' ? memoryInbox() : sqliteInbox({ path }) })
      metricsText(receiver)
      receiver.on('data', function save() {})
      await receiver.open()
      await post(data(vin, 1))
      await expect.poll(() => clock.advance(1).then(() => receiver.stats().handled)).toBe(1)
      const text = metricsText(receiver)
      const own = new Set([...text.matchAll(/^# TYPE (\w+)/gm)].map(([, name]) => name))
      const rows = [...readFileSync('docs/observing.md', 'utf8').matchAll(/^- `(fleethook_\w+)`.*?: (.+)$/gm)]
      expect(rows.length).toBe(listed.size)
      // With `serve` alone, and with two secrets.
      const elsewhere = /Kafka|Postgres|brokers|SQLite only|certificate|place in the list|with the option/
      const missing = rows.filter(([, name = '', help = '']) => !own.has(name) && !elsewhere.test(help))
      expect(missing.map(([, name]) => name)).toEqual([])
      expect(Number(samples(text).get('fleethook_inbox_used_ratio'))).toBeLessThan(0.5)
      await receiver.drain()
    },
  )

  test('the share of a full inbox is 1, with limits and with the size of its file', async () => {
    const limited = scene({ limits: { pendingMessages: 2 } })
    limited.receiver.on('data', () => new Promise(() => {}))
    await limited.post([data(vin, 1), data(vin, 2)])
    expect(metricsText(limited.receiver)).toContain('\nfleethook_inbox_used_ratio 1\n')
    const file = scene({ inbox: sqliteInbox({ path: files.path(), maxBytes: 8 * 1_048_576 }) })
    file.receiver.on('data', () => new Promise(() => {}))
    const large = 'x'.repeat(400_000)
    let status = 200
    for (let n = 0; status === 200; n += 1) ({ status } = await file.post({ ...data(vin, n), note: large }))
    expect(Number(samples(metricsText(file.receiver)).get('fleethook_inbox_used_ratio'))).toBeGreaterThan(0.8)
    await file.drainedIn(2_000)
  })

  const promtool = runs('promtool')
  test.skipIf(!promtool)('promtool accepts the metrics, the rules and their tests', async () => {
    execFileSync('promtool', ['check', 'metrics'], { input: await everything(), stdio: ['pipe', 'pipe', 'pipe'] })
    execFileSync('promtool', ['check', 'rules', `${folder}/alerts.yml`], { stdio: 'pipe' })
    execFileSync('promtool', ['test', 'rules', `${folder}/alerts.test.yml`], { stdio: 'pipe' })
  })
})

const scrapeForm = z.object({ scrape_configs: z.array(z.object({ job_name: z.string() })) })
const alertsForm = z.object({
  groups: z.array(
    z.object({ rules: z.array(z.object({ expr: z.string(), labels: z.record(z.string(), z.string()) })) }),
  ),
})

function runs(program: string): boolean {
  try {
    execFileSync(program, ['--version'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
}
