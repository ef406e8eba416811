import { join } from 'node:path'
import { createReceiver, type FieldValues, type Receiver, vehicles } from 'fleethook'
import { sqliteInbox } from 'fleethook/inbox/sqlite'
import { inspectorRoutes } from 'fleethook/inspector'
import { operatorRoutes } from 'fleethook/operator'
import { deliver, fakeClock, message, vehicle } from 'fleethook/testing'
import { becomes, episode, fact, is, span } from 'fleethook/when'
import { expect, onTestFinished, test } from 'vitest'
import { command } from '../cli/command.ts'
import { newFolder } from '../folder.ts'

const log = { debug() {}, info() {}, warn() {}, error() {} }
const vins = ['0FLEETV14T0000001', '0FLEETV14T0000002', '0FLEETV14T0000003'] as const

async function fed(options: Pick<Parameters<typeof createReceiver>[0], 'inbox'> = {}): Promise<Receiver> {
  const receiver: Receiver = createReceiver({ secret: false, parts: [vehicles({ fields: 'all' })], log, ...options })
  onTestFinished(async () => void (await receiver.drain()))
  for (const [index, vin] of vins.entries()) {
    const car = vehicle(receiver, vin)
    await car.data({ BatteryLevel: 80 + index, Location: { latitude: 52, longitude: 5 } })
    await car.data({ BatteryLevel: null, Gear: 'P' })
    await car.state('asleep')
  }
  return receiver
}

test('GET /vehicles lists vehicles with their places, in pages; GET /vehicles/:vin has the values with their ages', async () => {
  const app = operatorRoutes(await fed(), { secret: 'an-operator' })
  const ask = async (path: string): Promise<{ readonly status: number; readonly body: unknown }> => {
    const response = await app.request(path, { headers: { authorization: 'an-operator' } })
    return { status: response.status, body: await response.json() }
  }
  const first = await ask('/vehicles?limit=2')
  expect(first.body).toEqual({
    next: vins[1],
    vehicles: vins.slice(0, 2).map((vin, n) => ({
      ...{ vin, online: false, state: 'asleep', isOnlineCertain: true, fields: 3 },
      ...{ battery: 80 + n, gear: 'P', charge: null },
      seenAt: expect.stringMatching(/^\d{4}-.*Z$/),
      location: { latitude: 52, longitude: 5, at: '2026-11-21T10:00:00.000Z' },
    })),
  })
  expect((await ask(`/vehicles?limit=2&after=${vins[1]}`)).body).toMatchObject({
    next: null,
    vehicles: [{ vin: vins[2] }],
  })
  expect((await ask(`/vehicles/${vins[0]}`)).body).toMatchObject({
    vin: vins[0],
    fields: {
      BatteryLevel: {
        value: 80,
        isCertain: true,
        ageMs: expect.any(Number),
        invalidSince: expect.stringContaining('T'),
      },
      Gear: { value: 'P', isCertain: true, at: expect.stringContaining('T'), since: expect.stringContaining('T') },
    },
  })
  expect(await ask('/vehicles/nobody')).toMatchObject({ status: 404, body: { error: 'vehicle_unknown' } })
  expect(await ask('/vehicles?limit=0')).toMatchObject({ status: 400 })
})

test('the view of a vehicle shows what rules with a time wait for', async () => {
  const folder = newFolder('timers')
  const clock = fakeClock()
  const edge = becomes('Gear', 'P').after({ minutes: 30 }).named('parked')
  const inbox = sqliteInbox({ path: join(folder, 'inbox.db') })
  const receiver = createReceiver({ secret: false, parts: [vehicles({ fields: ['Gear'] })], log, clock, inbox })
  onTestFinished(async () => void (await receiver.drain()))
  receiver.when(edge, () => undefined)
  const car = vehicle(receiver, vins[0], { clock })
  await car.data({ Gear: 'D' })
  await car.data({ Gear: 'P' })
  const authorization = 'an-operator'
  const shownBy = async (app: ReturnType<typeof operatorRoutes>): Promise<unknown> =>
    (await app.request(`/vehicles/${vins[0]}`, { headers: { authorization } })).json()
  expect(await shownBy(operatorRoutes(receiver, { secret: authorization }))).toMatchObject({
    timers: [{ edge: 'parked', since: '2026-11-21T10:00:00.000Z', dueAt: '2026-11-21T10:30:00.000Z' }],
  })
  const { stdout, stderr } = await command(['vehicles', vins[0]], { FLEETHOOK_INBOX: join(folder, 'inbox.db') })
  expect(stderr).toBe('')
  expect(stdout).toMatch(/parked +2026-11-21 10:00:00 +2026-11-21 10:30:00/)
})

test('the view of a vehicle shows the episodes that are over and the one that lasts, unless payloads are hidden', async () => {
  const drive = episode('drive', { during: is('Gear', 'D'), measures: { odometer: span('Odometer') } })
  const inbox = sqliteInbox({ path: join(newFolder('episodes'), 'inbox.db') })
  const receiver = createReceiver({ secret: false, parts: [vehicles({ fields: ['Gear', 'Odometer'] })], log, inbox })
  onTestFinished(async () => void (await receiver.drain()))
  receiver.when(drive, () => undefined)
  const startMs = Date.now() - 3_600_000
  const say = async (second: number, data: FieldValues): Promise<void> => {
    const createdAt = new Date(startMs + second * 1_000).toISOString()
    await (
      await deliver(receiver, message.data(data, { vin: vins[0], createdAt }))
    ).settled
  }
  await say(-60, { Gear: 'P', Odometer: 1000 })
  await say(0, { Gear: 'D' })
  await say(600, { Gear: 'P' })
  await say(630, { Odometer: 1013 })
  await say(1_200, { Gear: 'D' })
  await say(1_260, { Odometer: 1014 })
  const authorization = 'an-operator'
  const shownBy = async (app: ReturnType<typeof operatorRoutes>): Promise<unknown> =>
    (await app.request(`/vehicles/${vins[0]}`, { headers: { authorization } })).json()
  expect(await shownBy(operatorRoutes(receiver, { secret: authorization }))).toMatchObject({
    episodes: [
      { name: 'drive', endedAt: null, durationMs: 60_000, measures: { odometer: { from: 1013, to: 1014 } } },
      { name: 'drive', durationMs: 600_000, missing: [], measures: { odometer: { from: 1000, to: 1013 } } },
    ],
  })
  const hidden = inspectorRoutes(receiver, { secret: authorization, payloads: false })
  expect(await shownBy(hidden)).toMatchObject({ episodes: [] })
})

test('the view of a vehicle shows the episode that lasts once, also when its first messages are not among the newest', async () => {
  const drive = episode('drive', { during: is('Gear', 'D'), measures: { odometer: span('Odometer') } })
  const inbox = sqliteInbox({ path: join(newFolder('episodes'), 'inbox.db') })
  const receiver = createReceiver({ secret: false, parts: [vehicles({ fields: ['Gear', 'Odometer'] })], log, inbox })
  onTestFinished(async () => void (await receiver.drain()))
  receiver.when(drive, () => undefined)
  const said = (second: number, data: FieldValues): object => {
    const createdAt = new Date(Date.UTC(2026, 0, 1, 8) + second * 1_000).toISOString()
    return message.data(data, { vin: vins[0], createdAt })
  }
  // As many as the view reads, in one body: each body waits for the disk.
  const drives = Array.from({ length: 2_000 }, (_, n) => said(n + 1, { Gear: 'D', Odometer: 1000 + (n + 1) / 100 }))
  const body = [said(-60, { Gear: 'P', Odometer: 1000 }), said(0, { Gear: 'D' }), ...drives]
  expect((await receiver.accept({ authorization: undefined, body })).status).toBe(200)
  const app = operatorRoutes(receiver, { secret: 'an-operator' })
  const shown = async (): Promise<unknown> =>
    (await app.request(`/vehicles/${vins[0]}`, { headers: { authorization: 'an-operator' } })).json()
  await expect.poll(shown).toMatchObject({
    episodes: [{ endedAt: null, durationMs: 2_000_000, measures: { odometer: { from: 1000, to: 1020 } } }],
  })
})

test('the view of a vehicle shows its facts, on the command line too, and hides them with payloads', async () => {
  const [customer, booking] = [fact('customer', 'string'), fact('booking', 'string')]
  const path = join(newFolder('facts'), 'inbox.db')
  const parts = [vehicles({ fields: ['Gear'], facts: [customer, booking] })] as const
  const receiver = createReceiver({ secret: false, parts, log, inbox: sqliteInbox({ path }) })
  onTestFinished(async () => void (await receiver.drain()))
  await receiver.vehicles.set(vins[0], { customer: 'c-12' }, { from: new Date('2026-01-01T08:00:00Z') })
  await receiver.vehicles.set(vins[0], { booking: 'b-7' }, { from: new Date('2999-01-01T08:00:00Z') })
  const authorization = 'an-operator'
  const shownBy = async (app: ReturnType<typeof operatorRoutes>): Promise<unknown> =>
    (await app.request(`/vehicles/${vins[0]}`, { headers: { authorization } })).json()
  await expect
    .poll(() => shownBy(operatorRoutes(receiver, { secret: authorization })))
    .toMatchObject({
      facts: [
        { name: 'customer', value: 'c-12', since: '2026-01-01T08:00:00.000Z' },
        { name: 'booking', value: null, since: null, nextAt: '2999-01-01T08:00:00.000Z' },
      ],
    })
  const hidden = inspectorRoutes(receiver, { secret: authorization, payloads: false })
  expect(await shownBy(hidden)).not.toHaveProperty('facts')
  const { stdout } = await command(['vehicles', vins[0]], { FLEETHOOK_INBOX: path })
  expect(stdout).toMatch(/customer +"c-12" +2026-01-01 08:00:00/)
})

test('a receiver without the part says so', async () => {
  const app = operatorRoutes(createReceiver({ secret: false, log }), { secret: 'an-operator' })
  const response = await app.request('/vehicles', { headers: { authorization: 'an-operator' } })
  expect([response.status, await response.text()]).toEqual([400, expect.stringContaining('no part `vehicles`')])
})

test('`fleethook vehicles` shows what a running receiver has', { timeout: 180_000 }, async () => {
  const folder = newFolder('vehicles')
  await fed({ inbox: sqliteInbox({ path: join(folder, 'inbox.db') }) })
  const cli = (path: string, ...args: readonly string[]): ReturnType<typeof command> =>
    command(['vehicles', ...args], { FLEETHOOK_INBOX: path })

  const running = await cli(join(folder, 'inbox.db'), vins[1])
  expect(running.stderr).toBe('')
  expect(running.stdout).toMatch(/BatteryLevel +81 .*no value since/)
  expect(running.stdout).toMatch(/Gear +"P"/)
  expect(running.stdout).toMatch(/state +asleep/)
  expect(running.stdout).not.toContain('uncertain')

  const unknown = await cli(join(folder, 'inbox.db'), 'nobody')
  expect([unknown.status, unknown.stderr]).toEqual([
    1,
    expect.stringContaining('No message of a vehicle with this VIN was received.'),
  ])
})

test('`fleethook vehicles` shows a value that waits to be confirmed, and how many were left out, and so does the view of a vehicle', async () => {
  const path = join(newFolder('odd'), 'inbox.db')
  const clock = fakeClock()
  const kept = { parts: [vehicles({ fields: ['Odometer', 'Soc'] })], log, clock, inbox: sqliteInbox({ path }) }
  const receiver = createReceiver({ secret: false, ...kept })
  onTestFinished(async () => void (await receiver.drain()))
  const car = vehicle(receiver, vins[0], { clock })
  for (const Odometer of [100, 9_000, 100.1, 429_496]) await car.data({ Odometer })
  await car.data({ Soc: -1 })
  await vehicle(receiver, vins[1], { clock }).data({ Odometer: 7 })
  const environment = { FLEETHOOK_INBOX: path }
  const all = await command(['vehicles'], environment)
  expect(all.stdout).toMatch(/^0FLEETV14T0000001 .* 2 values left out, 1 held$/m)
  expect(all.stdout).toMatch(/^0FLEETV14T0000002 .* 1$/m)
  const one = await command(['vehicles', vins[0]], environment)
  expect(one.stdout).toMatch(/^Odometer +100\.1 /m)
  expect(one.stdout).toMatch(/^NOT BELIEVED +LEFT OUT +HELD +SENT \(UTC\)$/m)
  expect(one.stdout).toMatch(/^Odometer +1 +429496 +2026-11-21 10:00:\d\d$/m)
  expect(one.stdout).toMatch(/^Soc +1$/m)
  const authorization = 'an-operator'
  for (const payloads of [true, false]) {
    const app = inspectorRoutes(receiver, { secret: authorization, payloads })
    const shown = await (await app.request(`/vehicles/${vins[0]}`, { headers: { authorization } })).text()
    expect(JSON.parse(shown)).toMatchObject({
      odd: [
        { field: 'Odometer', leftOut: 1, heldAt: expect.any(String) },
        { field: 'Soc', leftOut: 1 },
      ],
    })
    expect(shown.includes('429496')).toBe(payloads)
  }
})
