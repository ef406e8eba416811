/* The template `logbook`, as it is, on a real server: killed while it writes, and each query of its dashboard. */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { FieldValues } from 'fleethook'
import { message } from 'fleethook/testing'
import { expect, test, vi } from 'vitest'
import { parse } from 'yaml'
import { command } from '../cli/command.ts'
import { spawnTarget, type Target } from '../conformance/spawn.ts'
import { hasPostgres } from '../once/servers.ts'
import { expectOnlyLargerRevisions } from '../templates/revisions.ts'
import { onSources, secret, templateCommand } from '../templates/running.ts'
import { type Scene, startScene, vinOf } from './scene.ts'

const template = join(import.meta.dirname, '../../examples/logbook')
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

const trip = { minutes: '10.0', distance: '13.000', unit: 'mi', kwh: '3.50' }
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
    vehicles.map((n) => ({
      vin: vinOf(n),
      distance: '13.000',
      kwh_driven: '3.50',
      kwh_charged: '10.40',
      cost: '3.12',
    })),
  )
})

test.skipIf(!hasPostgres).each([
  { table: 'trips', view: 'logbook', on: { Gear: 'D' }, off: { Gear: 'P' } },
  {
    table: 'charges',
    view: 'charging_costs',
    on: { DetailedChargeState: 'Charging' },
    off: { DetailedChargeState: 'Complete' },
  },
] as const)(
  'logbook writes only a larger revision of $table, and keeps what was revoked',
  async ({ table, view, on, off }) => {
    await using scene = await startScene()
    await prepare(scene)
    await using server = await start(scene)
    const ask = async (sql: string): Promise<Record<string, unknown>[]> => (await scene.pool.query(sql)).rows
    await expectOnlyLargerRevisions({
      on,
      off,
      say: (second, data) => post(server, 0, [second, data]),
      stored: async () =>
        (await ask(`SELECT revision, revoked FROM ${table} ORDER BY started`)).map(({ revision, revoked }) => ({
          revision: Number(revision),
          revoked: revoked === true,
        })),
      shown: async () =>
        (await ask(`SELECT extract(epoch FROM ended - started) / 60 AS minutes FROM ${view} ORDER BY started`)).map(
          ({ minutes }) => Number(minutes),
        ),
      write: async (change) => void (await ask(`UPDATE ${table} SET ${change}`)),
    })
    await server.stop('SIGTERM')
  },
)

const customers =
  'logbook has the customer of the time, also of a booking that is written afterwards, and all miles add up'
test.skipIf(!hasPostgres)(customers, async () => {
  await using scene = await startScene()
  await prepare(scene)
  await using server = await start(scene)
  const columns = (what: string) => async () => (await scene.pool.query(`SELECT ${what}`)).rows
  const finds = (what: string, expected: readonly object[]) =>
    vi.waitFor(async () => expect(await columns(what)()).toEqual(expected), { timeout: 60_000, interval: 200 })
  for (const each of day) await post(server, 0, each)
  await finds('customer, distance FROM logbook', [{ customer: null, distance: '13.000' }])
  const book = (name: string, from: number, until: number) =>
    scene.pool.query('INSERT INTO bookings (vin, customer, starts, ends) VALUES ($1, $2, $3, $4)', [
      vinOf(0),
      name,
      new Date(startMs + from * 1_000),
      new Date(startMs + until * 1_000),
    ])
  // The messages came in one go, so the trip of hours ago can still be parted.
  await book('c-1', -3_600, 300)
  await book('c-2', 300, 20_000)
  await expect(book('c-3', 0, 60)).rejects.toThrow(`${vinOf(0)} is booked by c-1`)
  // Whose row was told is another one at once, and a correction waits for two minutes.
  await vi.waitFor(
    async () => {
      await post(server, 0, [8_000 + Math.floor(Math.random() * 100), { BatteryLevel: 85 }])
      const found = await columns('customer, distance FROM logbook ORDER BY started')()
      expect(found).toEqual([
        { customer: 'c-1', distance: '6.000' },
        { customer: 'c-2', distance: '7.000' },
      ])
    },
    { timeout: 200_000, interval: 2_000 },
  )
  await finds('customer, distance, kwh_charged FROM customers', [
    { customer: 'c-1', distance: '6.000', kwh_charged: null },
    { customer: 'c-2', distance: '7.000', kwh_charged: '10.40' },
  ])
  await finds('distance FROM months', [{ distance: '13.000' }])
  expect(await rows(scene, 'handovers')).toEqual([])
  await server.stop('SIGTERM')
})

const panelsOf =
  'each panel of the dashboard has rows of simulated vehicles, with the columns that its kind needs, as the user that only reads'
test.skipIf(!hasPostgres)(panelsOf, { timeout: 900_000 }, async () => {
  await using scene = await startScene()
  await prepare(scene, "it's-a-password")
  const { rows: given } = await scene.pool.query("SELECT rolpassword FROM pg_authid WHERE rolname = 'logbook_reader'")
  expect(given[0]?.rolpassword).toMatch(/^SCRAM/)
  await scene.pool.query('CREATE TABLE of_the_business (n int)')
  await using server = await start(scene)
  const send = ['send', '--url', server.url, '--count', '20000', '--rate', '5000']
  expect(await command(send, { WEBHOOK_SECRET: secret })).toMatchObject({ status: 0 })
  await vi.waitFor(async () => expect(await rows(scene, 'logbook')).not.toHaveLength(0), { timeout: 240_000 })
  await vi.waitFor(async () => expect(await rows(scene, 'charging_costs')).not.toHaveLength(0), { timeout: 240_000 })
  await server.stop('SIGTERM')
  const reader = scene.newPool(1, scene.server.port, 'postgres', { user: 'logbook_reader' })
  // So that the last hour is today.
  await reader.query(`SET TIME ZONE ${12 - new Date().getUTCHours()}`)
  for (const { fieldConfig, targets, title, type } of JSON.parse(read('grafana/dashboards/fleet.json')).panels)
    for (const { rawSql, format } of targets) {
      const { fields, rows: found } = await reader.query(expanded(rawSql))
      expect({ title, rows: found.length }).not.toEqual({ title, rows: 0 })
      const kinds = Object.fromEntries(fields.map(({ name, dataTypeID }) => [name, kindOf.get(dataTypeID)]))
      if (type === 'geomap') expect(kinds).toMatchObject({ latitude: 'number', longitude: 'number', percent: 'number' })
      // Each value of `metric` is a line.
      if (format === 'time_series') expect(kinds).toEqual({ time: 'time', metric: 'text', value: 'number' })
      for (const { matcher } of fieldConfig.overrides) expect(kinds).toMatchObject({ [matcher.options]: 'number' })
      if (type === 'table') expect(Object.values(kinds)).not.toContain(undefined)
    }
  await expect(reader.query('DELETE FROM trips')).rejects.toThrow('permission denied')
  await expect(reader.query('SELECT FROM of_the_business')).rejects.toThrow('permission denied')
  await expect(reader.query('SELECT FROM fleethook.waiting')).rejects.toThrow('permission denied')
})

test('the dashboard, its datasource and the services of Compose name each other, with the members that they have', () => {
  const { datasources } = parse(read('grafana/provisioning/datasources/database.yaml'))
  const { providers } = parse(read('grafana/provisioning/dashboards/fleet.yaml'))
  const { services } = parse(read('compose.yaml'), { merge: true })
  const { panels } = JSON.parse(read('grafana/dashboards/fleet.json'))
  const titles = [
    'Where the vehicles are',
    'Charge over time',
    'Trips today',
    'Charges today',
    'Energy and cost by month',
    'What is doubtful',
  ]
  expect(panels).toMatchObject(titles.map((title, at) => ({ id: at + 1, title })))
  for (const { datasource, targets } of panels)
    for (const each of [{ datasource }, ...targets]) expect(datasources).toMatchObject([each.datasource])
  // The files are where Grafana and the server of the database look for them.
  const mounted = [services.grafana, services.database].flatMap(({ volumes }) => volumes)
  for (const [file, place] of [
    ['./grafana/provisioning', '/etc/grafana/provisioning'],
    ['./grafana/dashboards', providers[0].options.path],
  ])
    expect(mounted).toContain(`${file}:${place}:ro`)
  expect(services.grafana.environment).toMatchObject({
    GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH: `${providers[0].options.path}/fleet.json`,
  })
  const [{ url, user, secureJsonData, jsonData }] = datasources
  expect(read('grafana/reader.sql')).toContain(`CREATE ROLE ${user} LOGIN`)
  // Grafana reads them from its environment, and Compose from `.env`.
  const given = [url, secureJsonData.password, jsonData.database, jsonData.sslmode]
  expect(given).toEqual(['$READER_HOST', '$READER_SECRET', '$READER_DATABASE', '$READER_SSLMODE'])
  const { environment } = services.grafana
  const example = read('.env.example')
  for (const [, name = '', otherwise = ''] of example.matchAll(/^(READER_\w+)=(.*)$/gm))
    expect(environment[name]).toBe(otherwise === '' ? `\${${name}:?is not set}` : `\${${name}:-${otherwise}}`)
  expect(Object.keys(environment).filter((name) => name.startsWith('READER_'))).toHaveLength(4)
  const [, host, database] = /^READER_HOST=(.*)[^]*^READER_DATABASE=(.*)$/m.exec(example) ?? []
  expect(services.receiver.environment['DATABASE_URL']).toContain(`@${host}/${database}`)
})

/** What Grafana makes of a query before it asks it: for the last six hours. */
function expanded(sql: string): string {
  const [from, to] = [Date.now() - 6 * 3_600_000, Date.now()].map((ms) => new Date(ms).toISOString())
  const found = sql.replaceAll(/\$__timeFilter\((\w+)\)/g, `$1 BETWEEN '${from}' AND '${to}'`)
  expect(found).not.toContain('$__')
  return found
}

/** What Grafana reads the types of Postgres as, by their numbers. */
const kindOf: ReadonlyMap<number, string> = new Map([
  [16, 'boolean'],
  [20, 'number'],
  [25, 'text'],
  [701, 'number'],
  [1184, 'time'],
  [1700, 'number'],
])

const read = (path: string): string => readFileSync(join(template, path), 'utf8')

const rows = async (scene: Scene, name: string): Promise<Record<string, unknown>[]> =>
  (await scene.pool.query(`SELECT * FROM ${name}`)).rows.toSorted((a, b) => String(a.vin).localeCompare(String(b.vin)))

const envFor = ({ server }: Scene): Record<string, string> => ({
  DATABASE_URL: `postgres://test@127.0.0.1:${server.port}/postgres`,
})

/** Creates the tables, as the README says. */
async function prepare(scene: Scene, password = ''): Promise<void> {
  const env = { ...process.env, ...envFor(scene), READER_SECRET: password }
  expect(await command(['postgres', 'schema', '--apply'], envFor(scene))).toMatchObject({ status: 0 })
  for (const _ of ['first', 'again'])
    expect(execFileSync(process.execPath, [...onSources, 'migrate.ts'], { cwd: template, env, encoding: 'utf8' })).toBe(
      `The tables are ready.\n${password === '' ? '' : 'Grafana reads as logbook_reader.\n'}`,
    )
}

const start = (scene: Scene): Promise<Target> => spawnTarget(templateCommand('logbook', envFor(scene)))

async function post({ url }: Target, vehicle: number, [second, data]: Said[number]): Promise<void> {
  const createdAt = new Date(startMs + second * 1_000).toISOString()
  const body = JSON.stringify(message.data(data, { vin: vinOf(vehicle), createdAt }))
  const { status } = await fetch(url, { method: 'POST', headers: { authorization: secret }, body })
  expect(status).toBe(200)
}
