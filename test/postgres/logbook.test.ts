/* The template `logbook`, as it is, on a real server: killed while it writes, and each query of its dashboard. */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { FieldValues } from 'fleethook'
import { message } from 'fleethook/testing'
import { expect, test, vi } from 'vitest'
import { z } from 'zod'
import { command } from '../cli/command.ts'
import { spawnTarget, type Target } from '../conformance/spawn.ts'
import { hasPostgres } from '../once/servers.ts'
import { type Scene, startScene, vinOf } from './scene.ts'

const root = join(import.meta.dirname, '../..')
const template = join(root, 'examples/logbook')
const secret = 'a-secret-for-this-test'
const sources = ['--import', join(root, 'test/docs/resolve-sources.ts')]
const startMs = Date.now() - 6 * 3_600_000
const home = { latitude: 30.25, longitude: -97.75 }

type Said = readonly (readonly [second: number, data: FieldValues])[]

/** A trip and a charge at home, each field in a message of its own. */
const day: Said = [
  [-60, { Gear: 'P' }],
  [-59, { DetailedChargeState: 'Disconnected' }],
  [-58, { Odometer: 1000 }],
  [-57, { EnergyRemaining: 50 }],
  [-56, { Location: home }],
  [-55, { BatteryLevel: 70 }],
  [-54, { LocatedAtHome: true }],
  [0, { Gear: 'D' }],
  [300, { Odometer: 1006 }],
  [400, { Gear: 'P' }],
  [460, { Gear: 'D' }],
  [600, { Gear: 'P' }],
  [610, { Location: home }],
  [630, { Odometer: 1013 }],
  [645, { EnergyRemaining: 46.5 }],
  [3_600, { DetailedChargeState: 'Charging' }],
  [3_601, { ACChargingEnergyIn: 0 }],
  [3_602, { DCChargingEnergyIn: 0 }],
  [7_200, { DetailedChargeState: 'Complete' }],
  [7_210, { DCChargingEnergyIn: 9.8 }],
  [7_220, { ACChargingEnergyIn: 10.4 }],
  [7_230, { BatteryLevel: 85 }],
  [7_300, { DetailedChargeState: 'Disconnected' }],
]

const trip = { minutes: '10.0', miles: '13.0', kwh: '3.50' }
const charge = { minutes: '60.0', kwh: '10.40', percent_from: 70, percent_to: 85, place: 'home', cost: '3.12' }

const once = 'logbook has each trip and charge once, with its values, although its process is killed while it writes'
test.skipIf(!hasPostgres)(once, async () => {
  await using scene = await startScene()
  await prepare(scene)
  const vehicles = Array.from({ length: 12 }, (_, n) => n)
  for (const [part, signal] of (['SIGKILL', 'SIGKILL', 'SIGTERM'] as const).entries()) {
    await using server = await start(scene)
    // The first of each three, then the second and so on: whatever a vehicle says comes in another order.
    const said = day.filter((_, index) => index % 3 === part)
    await Promise.all(
      vehicles.map(async (vehicle) => {
        for (const each of said) await post(server, vehicle, each)
      }),
    )
    if (part === 2) {
      await vi.waitFor(async () => expect(await rows(scene, 'charges')).toHaveLength(12), { timeout: 60_000 })
      await vi.waitFor(async () => expect(await rows(scene, 'fleethook.waiting')).toHaveLength(0), { timeout: 60_000 })
      // The last correction: each is told again while the messages come.
      await vi.waitFor(
        async () => {
          expect(await rows(scene, 'logbook')).toMatchObject(vehicles.map(() => trip))
          expect(await rows(scene, 'charging_costs')).toMatchObject(vehicles.map(() => charge))
        },
        { timeout: 60_000, interval: 500 },
      )
    }
    await server.stop(signal)
  }
  // Nobody listened for a moment, so the rows may say that messages are missing. They have the values nevertheless.
  for (const { why } of await rows(scene, 'doubtful')) expect(why).toBe('messages may be missing')
  expect(await rows(scene, 'months')).toMatchObject(
    vehicles.map((n) => ({ vin: vinOf(n), miles: '13.0', kwh_driven: '3.50', kwh_charged: '10.40', cost: '3.12' })),
  )
})

test.skipIf(!hasPostgres)(
  'each panel of the dashboard asks the datasource that is provisioned, and its query runs as the user that only reads',
  async () => {
    await using scene = await startScene()
    // Before the tables, as in compose.yaml.
    await scene.pool.query(read('grafana/reader.sql'))
    await prepare(scene)
    await scene.pool.query('SELECT save_vehicle(\'V\', now(), 50, \'{"latitude":1,"longitude":2}\')')
    const provisioned = read('grafana/provisioning/datasources/database.yaml')
    const compose = read('compose.yaml')
    const { panels } = dashboard.parse(JSON.parse(read('grafana/dashboards/fleet.json')))
    expect(panels.map(({ title }) => title)).toEqual([
      'Where the vehicles are',
      'Charge over time',
      'Trips today',
      'Charges today',
      'Energy and cost by month',
      'What is doubtful',
    ])
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length)
    expect(compose).toContain('./grafana/dashboards:/etc/grafana/dashboards:ro')
    expect(read('grafana/provisioning/dashboards/fleet.yaml')).toContain('path: /etc/grafana/dashboards')
    const reader = scene.newPool(1, scene.server.port, 'postgres', { user: 'reader' })
    for (const { datasource, targets, title } of panels)
      for (const { rawSql, ...target } of targets) {
        for (const { type, uid } of [datasource, target.datasource]) {
          expect(provisioned).toContain(`type: ${type}\n`)
          expect(provisioned).toContain(`uid: ${uid}\n`)
        }
        const sql = rawSql.replaceAll(/\$__timeFilter\((\w+)\)/g, "$1 BETWEEN now() - interval '6 hours' AND now()")
        expect(sql).not.toContain('$__')
        const { fields, rows: found } = await reader.query(sql)
        const names = fields.map(({ name }) => name)
        if (title === 'Where the vehicles are')
          expect(found).toMatchObject([{ latitude: 1, longitude: 2, percent: 50 }])
        if (target.format === 'time_series') expect(names).toEqual(['time', 'metric', 'value'])
      }
    await expect(reader.query('DELETE FROM trips')).rejects.toThrow('permission denied')
    await expect(reader.query('SELECT FROM fleethook.waiting')).rejects.toThrow('permission denied')
  },
)

/** What Grafana needs of a dashboard. */
const source = z.object({ type: z.string(), uid: z.string() })
const target = z.object({
  refId: z.string(),
  datasource: source,
  format: z.enum(['table', 'time_series']),
  rawQuery: z.literal(true),
  rawSql: z.string(),
})
const cell = z.int().min(0)
const dashboard = z.object({
  title: z.string(),
  uid: z.string().regex(/^[\w-]{1,40}$/),
  schemaVersion: z.int(),
  panels: z.array(
    z.object({
      id: z.int(),
      title: z.string(),
      type: z.enum(['geomap', 'timeseries', 'table']),
      datasource: source,
      gridPos: z.object({ x: cell, y: cell, w: cell.max(24), h: cell }),
      targets: z.array(target).min(1),
    }),
  ),
})

const read = (path: string): string => readFileSync(join(template, path), 'utf8')

const rows = async (scene: Scene, name: string): Promise<Record<string, unknown>[]> =>
  (await scene.pool.query(`SELECT * FROM ${name}`)).rows.toSorted((a, b) => String(a.vin).localeCompare(String(b.vin)))

const envFor = ({ server }: Scene): Record<string, string> => ({
  DATABASE_URL: `postgres://test@127.0.0.1:${server.port}/postgres`,
  WEBHOOK_SECRET: secret,
  PORT: '0',
})

/** Creates the tables, as the README says. */
async function prepare(scene: Scene): Promise<void> {
  const env = { ...process.env, ...envFor(scene) }
  expect(await command(['postgres', 'schema', '--apply'], envFor(scene))).toMatchObject({ status: 0 })
  for (const _ of ['first', 'again'])
    expect(execFileSync(process.execPath, [...sources, 'migrate.ts'], { cwd: template, env, encoding: 'utf8' })).toBe(
      'The tables are ready.\n',
    )
}

const start = (scene: Scene): Promise<Target> =>
  spawnTarget({
    runtime: 'logbook',
    command: process.execPath,
    args: [...sources, 'server.ts'],
    cwd: template,
    env: envFor(scene),
  })

async function post({ url }: Target, vehicle: number, [second, data]: Said[number]): Promise<void> {
  const createdAt = new Date(startMs + second * 1_000).toISOString()
  const body = JSON.stringify(message.data(data, { vin: vinOf(vehicle), createdAt }))
  const { status } = await fetch(url, { method: 'POST', headers: { authorization: secret }, body })
  expect(status).toBe(200)
}
