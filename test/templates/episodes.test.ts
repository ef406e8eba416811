// The templates that write trips and charges, with messages as vehicles send them: each field on its own, late, twice, in any order.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { fileURLToPath } from 'node:url'
import type { FieldValues, Format } from 'fleethook'
import { encode, normalize } from 'fleethook/normalize'
import { message } from 'fleethook/testing'
import { episode, type EpisodeOccurrence, is, span } from 'fleethook/when'
import { beforeEach, describe, expect, test } from 'vitest'
import { spawnTarget, type Target } from '../conformance/spawn.ts'
import { newFolder } from '../folder.ts'
import { inForm } from '../form.ts'
import { expectOnlyLargerRevisions } from './revisions.ts'
import { secret, templateCommand } from './running.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const startMs = Date.UTC(2026, 0, 1, 8)
/** A template writes a row or two for each of some hundred messages, and each of them waits for the disk. */
const writing = { timeout: 300_000 } as const
const formats: Format[] = ['service', 'vehicle_maker', 'event_collector']

type Template = 'trips' | 'charging-sessions'
type Row = Readonly<Record<string, unknown>>
/** What a vehicle says, and when, in seconds of its clock. */
type Script = readonly (readonly [second: number, data: FieldValues])[]
type Cases = Readonly<Record<string, { readonly says: Script; readonly rows: readonly Row[] }>>

const trips: Cases = {
  'the last miles and the energy come after the end': {
    says: [
      [-600, { Gear: 'P' }],
      [-590, { Odometer: 1000 }],
      [-580, { EnergyRemaining: 50 }],
      [0, { Gear: 'D' }],
      [300, { Odometer: 1004.2 }],
      [600, { Gear: 'P' }],
      [630, { Odometer: 1013 }],
      [645, { EnergyRemaining: 46.5 }],
    ],
    rows: [{ minutes: 10, miles: 13, kwh: 3.5, incomplete: 0 }],
  },
  'a stop of a minute is part of the trip, and a gear that is invalid for a moment is none': {
    says: [
      [-60, { Gear: 'P', Odometer: 1000, EnergyRemaining: 50 }],
      [0, { Gear: 'R' }],
      [10, { Gear: 'Invalid' }],
      [11, { Gear: 'D' }],
      [50, { Gear: null }],
      [300, { Gear: 'P' }],
      [360, { Gear: 'N' }],
      [361, { Gear: 'D' }],
      [600, { Gear: 'P' }],
      [630, { Odometer: 1013, EnergyRemaining: 46.5 }],
    ],
    rows: [{ minutes: 10, miles: 13, kwh: 3.5, incomplete: 0 }],
  },
  'what never comes is unknown, and not 0': {
    says: [
      [-60, { Gear: 'P', Odometer: 1000 }],
      [0, { Gear: 'D' }],
      [20, { EnergyRemaining: 50 }],
      [600, { Gear: 'P' }],
    ],
    rows: [{ minutes: 10, miles: null, kwh: null, incomplete: 1 }],
  },
}

const before: Script = [
  [-600, { DetailedChargeState: 'Disconnected' }],
  [-590, { BatteryLevel: 20 }],
]
const charges: Cases = {
  'the level and the energy come after the end': {
    says: [
      ...before,
      [0, { DetailedChargeState: 'Starting' }],
      [5, { DetailedChargeState: 'Charging' }],
      [3_600, { DetailedChargeState: 'Complete' }],
      [3_620, { ACChargingEnergyIn: 10.4 }],
      [3_645, { BatteryLevel: 60 }],
    ],
    rows: [{ minutes: 60, kwh: 10.4, percent_from: 20, percent_to: 60, incomplete: 0 }],
  },
  'with AC both counters count, and only what the socket gave is the energy': {
    says: [
      ...before,
      [0, { DetailedChargeState: 'Charging' }],
      [1, { ACChargingEnergyIn: 0 }],
      [2, { DCChargingEnergyIn: 0 }],
      [1_800, { ACChargingEnergyIn: 8.1 }],
      [1_801, { DCChargingEnergyIn: 7.7 }],
      [1_805, { ACChargingEnergyIn: 8.05 }],
      [3_600, { DetailedChargeState: 'Complete', BatteryLevel: 60 }],
      [3_620, { DCChargingEnergyIn: 15.4 }],
      [3_640, { ACChargingEnergyIn: 16.2 }],
    ],
    rows: [{ minutes: 60, kwh: 16.2, percent_from: 20, percent_to: 60, incomplete: 0 }],
  },
  'with DC only one counter counts': {
    says: [
      ...before,
      [-500, { ACChargingEnergyIn: 16.2, DCChargingEnergyIn: 15.4 }],
      [0, { DetailedChargeState: 'Charging' }],
      [1, { ACChargingEnergyIn: 16.2 }],
      [2, { ACChargingEnergyIn: 0 }],
      [30, { DCChargingEnergyIn: 1 }],
      [1_200, { DetailedChargeState: 'Stopped', BatteryLevel: 60 }],
      [1_220, { DCChargingEnergyIn: 30.5 }],
    ],
    rows: [{ minutes: 20, kwh: 30.5, percent_from: 20, percent_to: 60, incomplete: 0 }],
  },
  'clouds and a moment without power do not end a charge': {
    says: [
      ...before,
      [0, { DetailedChargeState: 'Charging' }],
      [60, { DetailedChargeState: 'NoPower' }],
      [62, { DetailedChargeState: 'Charging' }],
      [600, { ACChargingEnergyIn: 1, BatteryLevel: 22 }],
      [900, { DetailedChargeState: 'Stopped' }],
      [1_500, { DetailedChargeState: 'Starting' }],
      [1_505, { DetailedChargeState: 'Charging' }],
      [2_000, { DetailedChargeState: 'NoPower' }],
      [2_005, { DetailedChargeState: 'Unknown' }],
      [2_600, { DetailedChargeState: 'Charging' }],
      [3_600, { DetailedChargeState: 'Complete' }],
      [3_620, { ACChargingEnergyIn: 3, BatteryLevel: 25 }],
    ],
    rows: [{ minutes: 60, kwh: 3, percent_from: 20, percent_to: 25, incomplete: 0 }],
  },
  'a counter goes on or begins again when the vehicle is plugged in again, also soon': {
    says: [
      ...before,
      [0, { DetailedChargeState: 'Charging' }],
      [600, { DetailedChargeState: 'Disconnected' }],
      [620, { ACChargingEnergyIn: 2 }],
      [630, { BatteryLevel: 24 }],
      [900, { DetailedChargeState: 'Charging' }],
      [905, { ACChargingEnergyIn: 2 }],
      [1_500, { DetailedChargeState: 'Disconnected' }],
      [1_520, { ACChargingEnergyIn: 5, BatteryLevel: 30 }],
      [7_200, { DetailedChargeState: 'Charging' }],
      [8_400, { ACChargingEnergyIn: 7 }],
      [8_410, { DetailedChargeState: 'Complete' }],
      [8_450, { BatteryLevel: 44 }],
    ],
    rows: [
      { minutes: 10, kwh: 2, percent_from: 20, percent_to: 24, incomplete: 0 },
      // The number from before the plug came again, so it may have begun again behind it: from 2 to 5, or from 0.
      { minutes: 10, kwh: 3, percent_from: 24, percent_to: 30, incomplete: 1 },
      // From 5 to 7, or from 0: nobody can tell, so it is the smaller one, and says so.
      { minutes: 20.166667, kwh: 2, percent_from: 30, percent_to: 44, incomplete: 1 },
    ],
  },
  'two charges are two, and the number of the first one that comes again is none of the second': {
    says: [
      ...before,
      [0, { DetailedChargeState: 'Charging' }],
      [600, { DetailedChargeState: 'Complete' }],
      [620, { ACChargingEnergyIn: 2, BatteryLevel: 24 }],
      [7_000, { DetailedChargeState: 'Disconnected' }],
      [7_001, { BatteryLevel: 20 }],
      [7_200, { DetailedChargeState: 'Charging' }],
      [7_800, { DetailedChargeState: 'Complete' }],
      [7_820, { ACChargingEnergyIn: 2 }],
      [7_830, { BatteryLevel: 24 }],
    ],
    rows: [
      { minutes: 10, kwh: 2, percent_from: 20, percent_to: 24, incomplete: 0 },
      { minutes: 10, kwh: null, percent_from: 20, percent_to: 24, incomplete: 1 },
    ],
  },
}

let folder: string
beforeEach(() => {
  folder = newFolder('episodes')
})

const start = (template: Template): Promise<Target> => {
  const files = { DATABASE: join(folder, 'result.db'), FLEETHOOK_INBOX: join(folder, 'inbox.db') }
  return spawnTarget(templateCommand(template, files, folder))
}

interface Post {
  readonly format: Format
  readonly body: string
}

const post = async ({ url }: Target, { format, body }: Post): Promise<void> => {
  const authorization = format === 'event_collector' ? `Splunk ${secret}` : secret
  const answer = await fetch(url, { method: 'POST', headers: { authorization }, body })
  expect({ status: answer.status, text: await answer.text() }).toMatchObject({ status: 200 })
}

const said = (vin: string, format: Format, atMs: number, data: FieldValues): Post => ({
  format,
  body: JSON.stringify(encode(message.data(data, { vin, createdAt: new Date(atMs).toISOString() }), format)),
})

function ask(sql: string, ...values: readonly string[]): readonly Row[] {
  const db = new DatabaseSync(join(folder, 'result.db'))
  try {
    return db.prepare(sql).all(...values)
  } finally {
    db.close()
  }
}

const rowsOf = (vin: string): readonly Row[] =>
  ask('SELECT * FROM finished WHERE vin = ? ORDER BY started', vin).map((row) => ({
    ...row,
    minutes: Number(Number(row['minutes']).toFixed(6)),
  }))

/** Always the same order for the same seed. */
function shuffled<Item>(items: readonly Item[], seed: number): readonly Item[] {
  let state = seed + 1
  const keys = new Map(items.map((item) => [item, (state = (state * 48_271) % 2_147_483_647)]))
  return items.toSorted((a, b) => (keys.get(a) ?? 0) - (keys.get(b) ?? 0))
}

/** Each field in a message of its own, some of them twice. */
const inPieces = (vin: string, format: Format, says: Script): readonly Post[] =>
  says.flatMap(([second, data], index) =>
    Object.entries(data).flatMap(([field, value]) => {
      const piece = said(vin, format, startMs + second * 1_000, { [field]: value })
      return index % 2 === 0 ? [piece, { ...piece }] : [piece]
    }),
  )

describe.each([
  ['trips', trips],
  ['charging-sessions', charges],
] as const)('%s', (template, cases) => {
  const orders = Array.from({ length: inForm({ real: 3, full: 8, long: 30 }) }, (_, seed) => seed)
  const vehicles = Object.entries(cases).flatMap(([name, { says, rows }], index) =>
    orders.map((seed) => ({
      ...{ vin: `V${index}-${seed}`, name: `${name} (order ${seed})`, rows },
      // The first order is that of the vehicle's time, and its messages have several fields.
      posts: says.map(([second, data]) =>
        said(`V${index}-${seed}`, formats[seed % 3] ?? 'service', startMs + second * 1_000, data),
      ),
      pieces: shuffled(inPieces(`V${index}-${seed}`, formats[seed % 3] ?? 'service', says), seed),
      isInOrder: seed === 0,
    })),
  )

  const expectRows = (columns: readonly string[]): void => {
    for (const { vin, name, rows } of vehicles) {
      const found = rowsOf(vin).map((row) => Object.fromEntries(columns.map((column) => [column, row[column]])))
      const expected = rows.map((row) => Object.fromEntries(columns.map((column) => [column, row[column]])))
      expect({ name, rows: found }).toEqual({ name, rows: expected })
    }
  }
  const columns = template === 'trips' ? ['minutes', 'miles', 'kwh'] : ['minutes', 'kwh', 'percent_from', 'percent_to']

  test('has each row right in whatever order, pieces and format its messages come', writing, async () => {
    await using server = await start(template)
    await Promise.all(
      vehicles.map(async ({ posts, pieces, isInOrder }) => {
        for (const each of isInOrder ? posts : pieces) await post(server, each)
      }),
    )
    await expect.poll(() => (expectRows([...columns, 'incomplete']), true), writing).toBe(true)
  })
})

test.each([
  { template: 'trips', table: 'trips', on: { Gear: 'D' }, off: { Gear: 'P' } },
  {
    template: 'charging-sessions',
    table: 'sessions',
    on: { DetailedChargeState: 'Charging' },
    off: { DetailedChargeState: 'Complete' },
  },
] as const)(
  '$template writes only a larger revision, and keeps what was revoked',
  async ({ template, table, on, off }) => {
    await using server = await start(template)
    await expectOnlyLargerRevisions({
      on,
      off,
      say: (second, data) => post(server, said('V', 'service', startMs + second * 1_000, data)),
      stored: async () =>
        ask(`SELECT revision, revoked FROM ${table} ORDER BY started`).map(({ revision, revoked }) => ({
          revision: Number(revision),
          revoked: revoked === 1,
        })),
      shown: async () => ask('SELECT minutes FROM finished ORDER BY started').map(({ minutes }) => Number(minutes)),
      write: async (change) => void ask(`UPDATE ${table} SET ${change}`),
    })
  },
)

/** It is a module of Next.js, which has its own settings of the compiler. */
interface Diary {
  write(drive: EpisodeOccurrence, doubts: readonly string[]): void
  newest(): readonly Row[]
}

test('nextjs writes only a larger revision, and keeps what was revoked', async () => {
  process.env['DIARY'] = join(folder, 'diary.db')
  const { write, newest }: Diary = await import(join(root, 'examples/nextjs/diary.ts'))
  const drive = episode('drive', {
    during: is('Gear', 'D'),
    measures: { odometer: span('Odometer'), percent: span('BatteryLevel') },
  })
  const at = (minute: number, data: FieldValues): object =>
    message.data(data, { vin: 'V', createdAt: new Date(startMs + minute * 60_000).toISOString() })
  const [found] = drive.in(normalize([at(0, { Gear: 'P' }), at(1, { Gear: 'D' }), at(11, { Gear: 'P' })]))
  if (found === undefined) throw new Error('There is no drive.')
  for (const [revision, minutes, shown] of [
    [2, 10, 10],
    [1, 5, 10],
    [3, 6, 6],
  ] as const) {
    write({ ...found, revision, durationMs: minutes * 60_000 }, ['odometer is not certain'])
    expect(newest()).toMatchObject([{ minutes: shown, miles: null, incomplete: 1 }])
  }
  write({ ...found, revision: 4, revoked: true }, [])
  expect(newest()).toEqual([])
  write(found, [])
  expect(newest()).toEqual([])
  delete process.env['DIARY']
})

test('each template that stores episodes is among those above, or in test/postgres/logbook.test.ts', () => {
  const examples = join(root, 'examples')
  const stores = readdirSync(examples, { recursive: true, encoding: 'utf8' }).filter(
    (path) => /^[\w-]+\/[\w-]+\.ts$/.test(path) && / episode\(/.test(readFileSync(join(examples, path), 'utf8')),
  )
  expect(stores.toSorted()).toEqual([
    'charging-sessions/server.ts',
    'logbook/episodes.ts',
    'nextjs/receiver.ts',
    'trips/server.ts',
  ])
})
