// What vehicles said in public bug reports, posted to the templates as a user starts them: each row is right, or says that it is not.
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import type { FieldValues } from 'fleethook'
import { encode } from 'fleethook/normalize'
import { message } from 'fleethook/testing'
import { describe, expect, test } from 'vitest'
import { spawnTarget, type Target } from '../conformance/spawn.ts'
import { newFolder } from '../folder.ts'
import { charges, type History, trips } from '../when/histories.ts'
import { charges as moreCharges, trips as moreTrips } from './more-histories.ts'
import { secret, templateCommand } from './running.ts'

const startMs = Date.UTC(2026, 0, 10, 8)
const writing = { timeout: 300_000 } as const

interface Row {
  readonly miles?: number | null
  readonly kwh: number | null
  readonly unseen: number
  readonly incomplete: number
  readonly doubts: string
}

async function post({ url }: Target, body: object): Promise<void> {
  const answer = await fetch(url, { method: 'POST', headers: { authorization: secret }, body: JSON.stringify(body) })
  expect(answer.status).toBe(200)
}

/** Says it all in the order of arrival, and is heard again a day later. */
async function tell(server: Target, vin: string, { says }: History): Promise<void> {
  const arrives = ([second, , late = 0]: History['says'][number]): number => second + late
  const at = (second: number): string => new Date(startMs + second * 1_000).toISOString()
  const said = says.toSorted((one, other) => arrives(one) - arrives(other))
  for (const [second, data] of said) {
    const made = { ...message.data({}, { vin, createdAt: at(second) }), data: data as FieldValues } // oxlint-disable-line no-unsafe-type-assertion -- histories have only fields
    await post(server, encode(made, 'service'))
  }
  const last = Math.max(...says.map(([second]) => second))
  await post(server, encode(message.state('online', { vin, createdAt: at(last + 86_400) }), 'service'))
}

describe.each([
  { template: 'trips', histories: [...trips, ...moreTrips], table: 'trips' },
  { template: 'charging-sessions', histories: [...charges, ...moreCharges], table: 'sessions' },
] as const)('$template', ({ template, histories, table }) => {
  test('adds up to what was true in each history, or names what is not certain', writing, async () => {
    const folder = newFolder('histories')
    const files = { DATABASE: join(folder, 'result.db'), FLEETHOOK_INBOX: join(folder, 'inbox.db') }
    await using server = await spawnTarget(templateCommand(template, files, folder))
    await Promise.all(histories.map((history, nth) => tell(server, `V${nth}`, history)))
    using db = new DatabaseSync(files.DATABASE)
    const select = db.prepare('SELECT * FROM finished WHERE vin = ? ORDER BY started')
    const lasting = db.prepare(`SELECT count(*) AS count FROM ${table} WHERE lasts AND NOT revoked`)
    await expect.poll(() => lasting.get(), writing).toEqual({ count: 0 })
    for (const [nth, history] of histories.entries()) {
      // oxlint-disable-next-line no-unsafe-type-assertion -- the columns of the view
      const rows = select.all(`V${nth}`) as unknown as readonly Row[]
      const sum = rows.reduce(
        (all, { miles, kwh, unseen }) => all + (miles ?? (template === 'trips' ? 0 : (kwh ?? 0) + unseen)),
        0,
      )
      const isNamed = rows.some(({ incomplete }) => incomplete === 1)
      if (history.isNamed !== true || !isNamed) expect(sum, history.name).toBeCloseTo(history.sum, 2)
      else expect(sum, history.name).toBeLessThanOrEqual(history.sum + 0.001)
      for (const { miles, kwh, unseen, incomplete, doubts } of rows) {
        expect(Math.min(miles ?? 0, kwh ?? 0, unseen), history.name).toBeGreaterThanOrEqual(0)
        expect(incomplete === 1, history.name).toBe(doubts !== '' || (template === 'trips' ? miles : kwh) === null)
        if (unseen > 0.5) expect(doubts, history.name).not.toBe('')
      }
    }
  })
})

test.each([
  { template: 'trips', table: 'trips', on: { Gear: 'D', Odometer: 1000 }, off: { Gear: 'P', Odometer: 1010 } },
  {
    template: 'charging-sessions',
    table: 'sessions',
    on: { DetailedChargeState: 'Charging', ACChargingEnergyIn: 0 },
    off: { DetailedChargeState: 'Complete', ACChargingEnergyIn: 5 },
  },
] as const)(
  '$template finds what no row has, writes it, and leaves the other rows alone',
  async ({ template, table, on, off }) => {
    const folder = newFolder('check')
    const files = { DATABASE: join(folder, 'result.db'), FLEETHOOK_INBOX: join(folder, 'inbox.db') }
    await using server = await spawnTarget(templateCommand(template, { ...files, CHECK_HOURS: '0.0003' }, folder))
    const now = Date.now()
    for (const vin of ['LOST', 'KEPT'])
      for (const [minutesAgo, data] of [
        [600, off],
        [500, on],
        [470, off],
        [300, off],
      ] as const)
        await post(
          server,
          encode(message.data(data, { vin, createdAt: new Date(now - minutesAgo * 60_000).toISOString() }), 'service'),
        )
    using db = new DatabaseSync(files.DATABASE)
    const rows = (): unknown =>
      db
        .prepare('SELECT vin, round(minutes) AS minutes FROM finished ORDER BY vin')
        .all()
        .map((row) => ({ ...row }))
    const both = ['KEPT', 'LOST'].map((vin) => ({ vin, minutes: 30 }))
    await expect.poll(rows).toEqual(both)
    const kept = db.prepare(`SELECT * FROM ${table} WHERE vin = 'KEPT'`).get()
    db.exec(`DELETE FROM ${table} WHERE vin = 'LOST'`)
    await expect.poll(rows).toEqual(both)
    expect(db.prepare(`SELECT doubts FROM ${table} WHERE vin = 'LOST'`).get()).toEqual({
      doubts: 'its messages came late',
    })
    expect(db.prepare(`SELECT * FROM ${table} WHERE vin = 'KEPT'`).get()).toEqual(kept)
  },
)
