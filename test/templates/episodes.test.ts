// The templates that write trips and charges, with messages as vehicles send them: each field on its own, late, twice, in any order.
import { mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { fileURLToPath } from 'node:url'
import type { FieldValues, Format } from 'fleethook'
import { encode, normalize } from 'fleethook/normalize'
import { message } from 'fleethook/testing'
import { episode, type EpisodeOccurrence, is, span } from 'fleethook/when'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { spawnTarget, type Target } from '../conformance/spawn.ts'
import { inForm } from '../form.ts'
import { expectOnlyLargerRevisions } from './revisions.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const secret = 'a-secret-for-this-test'
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
  'the first values come after the start': {
    says: [
      [-600, { Gear: 'P' }],
      [0, { Gear: 'D' }],
      [0.111, { Odometer: 1000 }],
      [45, { EnergyRemaining: 50 }],
      [600, { Gear: 'P' }],
      [660, { Odometer: 1013 }],
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
  'a stop of five minutes is between two trips, and charging after a trip is not part of it': {
    says: [
      [-60, { Gear: 'P', Odometer: 1000, EnergyRemaining: 50 }],
      [0, { Gear: 'D' }],
      [300, { Gear: 'P' }],
      [330, { Odometer: 1005, EnergyRemaining: 49 }],
      [600, { Gear: 'D' }],
      [900, { Gear: 'P' }],
      [930, { Odometer: 1013, EnergyRemaining: 46.5 }],
      [1_200, { EnergyRemaining: 48 }],
      [5_000, { EnergyRemaining: 70 }],
    ],
    rows: [
      { minutes: 5, miles: 5, kwh: 1, incomplete: 0 },
      { minutes: 5, miles: 8, kwh: 2.5, incomplete: 0 },
    ],
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
  'the odometer of a parked vehicle is that of the end, an hour later too': {
    says: [
      [-60, { Gear: 'P', Odometer: 1000, EnergyRemaining: 50 }],
      [0, { Gear: 'D' }],
      [540, { Odometer: 1011, EnergyRemaining: 47 }],
      [600, { Gear: 'P' }],
      [630, { EnergyRemaining: 46.5 }],
      [4_200, { Odometer: 1013 }],
    ],
    rows: [{ minutes: 10, miles: 13, kwh: 3.5, incomplete: 0 }],
  },
  'a trip whose end was lost ends with the last word of its vehicle': {
    says: [
      [-60, { Gear: 'P', Odometer: 1000, EnergyRemaining: 50 }],
      [0, { Gear: 'D' }],
      [600, { Odometer: 1013, EnergyRemaining: 46.5 }],
      [80_000, { Gear: 'D' }],
      [80_600, { Gear: 'P' }],
      [80_630, { Odometer: 1020, EnergyRemaining: 45 }],
    ],
    rows: [
      { minutes: 10, miles: 13, kwh: 3.5, incomplete: 1 },
      { minutes: 10, miles: 7, kwh: 1.5, incomplete: 0 },
    ],
  },
  'a trip that had begun before its first message is incomplete': {
    says: [
      [0, { Gear: 'D', Odometer: 1000, EnergyRemaining: 50 }],
      [600, { Gear: 'P', Odometer: 1013, EnergyRemaining: 46.5 }],
    ],
    rows: [{ minutes: 10, miles: 13, kwh: 3.5, incomplete: 1 }],
  },
  'a vehicle that did not move has driven 0 miles': {
    says: [
      [-60, { Gear: 'P', Odometer: 1000, EnergyRemaining: 50 }],
      [0, { Gear: 'D' }],
      [60, { Gear: 'P' }],
      [70, { Odometer: 1000 }],
      [80, { EnergyRemaining: 50 }],
    ],
    rows: [{ minutes: 1, miles: 0, kwh: 0, incomplete: 0 }],
  },
  'a trip that lasts is not there yet, and its miles are not those of the one before': {
    says: [
      [-60, { Gear: 'P', Odometer: 1000, EnergyRemaining: 50 }],
      [0, { Gear: 'D' }],
      [570, { Odometer: 1013, EnergyRemaining: 46.5 }],
      [600, { Gear: 'P' }],
      [1_200, { Gear: 'D' }],
      [1_260, { Odometer: 1014, EnergyRemaining: 46 }],
    ],
    rows: [{ minutes: 10, miles: 13, kwh: 3.5, incomplete: 0 }],
  },
  'three legs with short stops are one trip, and what is said at a stop is not its end': {
    says: [
      [-60, { Gear: 'P', Odometer: 1000, EnergyRemaining: 50 }],
      [0, { Gear: 'D' }],
      [300, { Gear: 'P' }],
      [310, { Odometer: 1004 }],
      [320, { EnergyRemaining: 49 }],
      [470, { Gear: 'D' }],
      [900, { Gear: 'P' }],
      [960, { Gear: 'R' }],
      [1_000, { Gear: 'D' }],
      [1_500, { Gear: 'P' }],
      [1_520, { Odometer: 1016.5 }],
      [1_530, { EnergyRemaining: 45.25 }],
    ],
    rows: [{ minutes: 25, miles: 16.5, kwh: 4.75, incomplete: 0 }],
  },
  'downhill, a trip ends with more energy than it began with': {
    says: [
      [-60, { Gear: 'P', Odometer: 500, EnergyRemaining: 40 }],
      [0, { Gear: 'D' }],
      [300, { EnergyRemaining: 38 }],
      [900, { Gear: 'P' }],
      [930, { EnergyRemaining: 40.5 }],
      [940, { Odometer: 509 }],
    ],
    rows: [{ minutes: 15, miles: 9, kwh: -0.5, incomplete: 0 }],
  },
  'a new connection says the same again, while it drives and after it': {
    says: [
      [-60, { Gear: 'P', Odometer: 100, EnergyRemaining: 30 }],
      [0, { Gear: 'D' }],
      [5, { Gear: 'D', Odometer: 100, EnergyRemaining: 30 }],
      [240, { Gear: 'D', Odometer: 104, EnergyRemaining: 29 }],
      [420, { Gear: 'P' }],
      [430, { Odometer: 108, EnergyRemaining: 28 }],
      [3_000, { Gear: 'P', Odometer: 108, EnergyRemaining: 27.9 }],
    ],
    rows: [{ minutes: 7, miles: 8, kwh: 2, incomplete: 0 }],
  },
  'to another space, and away a quarter of an hour later': {
    says: [
      [-60, { Gear: 'P', Odometer: 10, EnergyRemaining: 5 }],
      [0, { Gear: 'R' }],
      [30, { Gear: 'P' }],
      [40, { Odometer: 10.01 }],
      [50, { EnergyRemaining: 5 }],
      [900, { Gear: 'D' }],
      [930, { Odometer: 10.2 }],
      [1_500, { Gear: 'P' }],
      [1_610, { Odometer: 16.01 }],
      [1_615, { EnergyRemaining: 3.25 }],
    ],
    rows: [
      { minutes: 0.5, miles: 0.01, kwh: 0, incomplete: 0 },
      { minutes: 10, miles: 6, kwh: 1.75, incomplete: 0 },
    ],
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
  'a counter goes on over a long pause, and each charge has its own part': {
    says: [
      ...before,
      [0, { DetailedChargeState: 'Charging' }],
      [600, { DetailedChargeState: 'Stopped' }],
      [620, { ACChargingEnergyIn: 2, BatteryLevel: 24 }],
      [7_200, { DetailedChargeState: 'Charging' }],
      [7_800, { DetailedChargeState: 'Complete' }],
      [7_820, { ACChargingEnergyIn: 5, BatteryLevel: 30 }],
    ],
    rows: [
      { minutes: 10, kwh: 2, percent_from: 20, percent_to: 24, incomplete: 0 },
      { minutes: 10, kwh: 3, percent_from: 24, percent_to: 30, incomplete: 0 },
    ],
  },
  'a counter begins again when the vehicle is plugged in again, also soon and when its first value is larger': {
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
      { minutes: 10, kwh: 3, percent_from: 24, percent_to: 30, incomplete: 0 },
      { minutes: 20.166667, kwh: 7, percent_from: 30, percent_to: 44, incomplete: 0 },
    ],
  },
  'two charges with the same energy are two': {
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
      { minutes: 10, kwh: 2, percent_from: 20, percent_to: 24, incomplete: 0 },
    ],
  },
  'what never comes is unknown, and not 0': {
    says: [
      ...before,
      [0, { DetailedChargeState: 'Charging', ACChargingEnergyIn: 0, DCChargingEnergyIn: 0 }],
      [3_600, { DetailedChargeState: 'Complete' }],
    ],
    rows: [{ minutes: 60, kwh: null, percent_from: 20, percent_to: null, incomplete: 1 }],
  },
  'a charge whose end was lost ends with the last word of its vehicle': {
    says: [
      ...before,
      [0, { DetailedChargeState: 'Charging' }],
      [1_800, { ACChargingEnergyIn: 4, BatteryLevel: 40 }],
      [40_000, { DetailedChargeState: 'Disconnected' }],
    ],
    rows: [{ minutes: 30, kwh: 4, percent_from: 20, percent_to: 40, incomplete: 1 }],
  },
  'with AC both counters run through a pause, and the one of the battery comes first': {
    says: [
      ...before,
      [0, { DetailedChargeState: 'Charging' }],
      [10, { ACChargingEnergyIn: 0 }],
      [11, { DCChargingEnergyIn: 0 }],
      [1_200, { DetailedChargeState: 'Stopped' }],
      [1_230, { DCChargingEnergyIn: 3.1 }],
      [1_231, { ACChargingEnergyIn: 3.3 }],
      [1_800, { DetailedChargeState: 'Charging' }],
      [3_000, { DetailedChargeState: 'Complete' }],
      [3_050, { DCChargingEnergyIn: 7.2 }],
      [3_060, { ACChargingEnergyIn: 7.7 }],
      [3_070, { BatteryLevel: 40 }],
    ],
    rows: [{ minutes: 50, kwh: 7.7, percent_from: 20, percent_to: 40, incomplete: 0 }],
  },
  'the level falls while the vehicle heats itself': {
    says: [
      ...before,
      [0, { DetailedChargeState: 'Charging' }],
      [600, { BatteryLevel: 19 }],
      [1_800, { DetailedChargeState: 'Complete' }],
      [1_810, { ACChargingEnergyIn: 0.5 }],
      [1_820, { BatteryLevel: 19 }],
    ],
    rows: [{ minutes: 30, kwh: 0.5, percent_from: 20, percent_to: 19, incomplete: 0 }],
  },
  'unplugged for a minute, it is another charge': {
    says: [
      ...before,
      [0, { DetailedChargeState: 'Charging' }],
      [600, { DetailedChargeState: 'Disconnected' }],
      [610, { ACChargingEnergyIn: 1.5 }],
      [615, { BatteryLevel: 23 }],
      [660, { DetailedChargeState: 'Charging' }],
      [700, { ACChargingEnergyIn: 0.2 }],
      [1_260, { DetailedChargeState: 'Complete' }],
      [1_270, { ACChargingEnergyIn: 1.9 }],
      [1_280, { BatteryLevel: 27 }],
    ],
    rows: [
      { minutes: 10, kwh: 1.5, percent_from: 20, percent_to: 23, incomplete: 0 },
      { minutes: 10, kwh: 1.9, percent_from: 23, percent_to: 27, incomplete: 0 },
    ],
  },
  'a charge that had begun before the first message of its vehicle is incomplete': {
    says: [
      [0, { DetailedChargeState: 'Charging', ACChargingEnergyIn: 3, BatteryLevel: 30 }],
      [1_200, { DetailedChargeState: 'Complete' }],
      [1_220, { ACChargingEnergyIn: 5 }],
      [1_230, { BatteryLevel: 40 }],
    ],
    rows: [{ minutes: 20, kwh: 2, percent_from: 30, percent_to: 40, incomplete: 1 }],
  },
  'fast charging on the way: two stalls, an hour apart, and both counters of the charge at home before': {
    says: [
      ...before,
      [-580, { ACChargingEnergyIn: 12.5, DCChargingEnergyIn: 11.8 }],
      [0, { DetailedChargeState: 'Starting' }],
      [60, { DCChargingEnergyIn: 1.2 }],
      [900, { DetailedChargeState: 'Stopped' }],
      [920, { DCChargingEnergyIn: 25.4 }],
      [930, { BatteryLevel: 70 }],
      [1_000, { DetailedChargeState: 'Disconnected' }],
      [4_500, { BatteryLevel: 30 }],
      [4_600, { DetailedChargeState: 'Charging' }],
      [4_660, { DCChargingEnergyIn: 2 }],
      [5_500, { DetailedChargeState: 'Complete' }],
      [5_510, { BatteryLevel: 75 }],
      [5_520, { DCChargingEnergyIn: 31 }],
    ],
    rows: [
      { minutes: 15, kwh: 25.4, percent_from: 20, percent_to: 70, incomplete: 0 },
      { minutes: 15, kwh: 31, percent_from: 30, percent_to: 75, incomplete: 0 },
    ],
  },
}

let folder: string
beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), 'fleethook-episodes-')))
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

const start = (template: Template): Promise<Target> =>
  spawnTarget({
    runtime: template,
    command: process.execPath,
    args: ['--import', join(root, 'test/docs/resolve-sources.ts'), join(root, 'examples', template, 'server.ts')],
    cwd: folder,
    env: {
      PORT: '0',
      WEBHOOK_SECRET: secret,
      DATABASE: join(folder, 'result.db'),
      FLEETHOOK_INBOX: join(folder, 'inbox.db'),
    },
  })

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

  test('has each row right over a restart and a kill', writing, async () => {
    const half = async (server: Target, part: number): Promise<void> => {
      await Promise.all(
        vehicles.map(async ({ pieces }) => {
          for (const each of pieces.filter((_, index) => index % 3 === part)) await post(server, each)
        }),
      )
    }
    for (const [part, signal] of (['SIGTERM', 'SIGKILL', 'SIGTERM'] as const).entries()) {
      await using server = await start(template)
      await half(server, part)
      await server.stop(signal)
    }
    await using server = await start(template)
    await expect.poll(() => (expectRows(columns), true), writing).toBe(true)
    await server.stop()
  })
})

test('trips shows what was told when a later message takes back what came after it', async () => {
  await using server = await start('trips')
  const says: Script = [
    [-600, { Gear: 'P', Odometer: 1000, EnergyRemaining: 50 }],
    [0, { Gear: 'D' }],
    [590, { Odometer: 1012 }],
    [600, { Gear: 'P' }],
    [610, { EnergyRemaining: 47 }],
    // The next value of a parked vehicle, but it was not parked: it drove on before.
    [3_000, { Odometer: 1014 }],
    [2_950, { Gear: 'D' }],
    [3_550, { Gear: 'P' }],
    [3_560, { Odometer: 1020, EnergyRemaining: 45 }],
  ]
  for (const [second, data] of says) await post(server, said('V', 'service', startMs + second * 1_000, data))
  await expect
    .poll(() => rowsOf('V'))
    .toMatchObject([
      { minutes: 10, miles: 12, kwh: 3, incomplete: 0 },
      { minutes: 10, miles: 8, kwh: 2, incomplete: 0 },
    ])
})

test('trips takes a clock that runs fast, or was never set, for what it is', async () => {
  await using server = await start('trips')
  const say = (vin: string, atMs: number, data: FieldValues): Promise<void> =>
    post(server, said(vin, 'service', atMs, data))
  // Five minutes fast after waking, and corrected while it drives.
  await say('FAST', Date.now() - 1_000, { Gear: 'P', Odometer: 1000, EnergyRemaining: 50 })
  await say('FAST', Date.now() + 300_000, { Gear: 'D' })
  await say('FAST', Date.now() + 299_000, { Odometer: 1002 })
  await say('FAST', Date.now() - 100, { Gear: 'P', Odometer: 1013, EnergyRemaining: 46.5 })
  // Never set: the time that it counts from, or 1,024 weeks ago.
  for (const [vin, firstMs] of [
    ['UNSET', 5_000],
    ['ROLLOVER', Date.now() - 1_024 * 7 * 86_400_000],
  ] as const) {
    await say(vin, firstMs, { Gear: 'P', Odometer: 1000, EnergyRemaining: 50 })
    await say(vin, firstMs + 1_000, { Gear: 'D' })
    await say(vin, Date.now(), { Gear: 'P', Odometer: 1013, EnergyRemaining: 46.5 })
  }
  for (const vin of ['FAST', 'UNSET', 'ROLLOVER']) {
    await expect.poll(() => rowsOf(vin)).toMatchObject([{ miles: 13, kwh: 3.5, incomplete: 0 }])
    expect(rowsOf(vin)[0]?.['minutes']).toBeLessThan(1)
  }
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
        ask(`SELECT revision, revoked FROM ${table} WHERE key = id ORDER BY started`).map(({ revision, revoked }) => ({
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
  write(drive: EpisodeOccurrence): void
  newest(): readonly Row[]
}

test('nextjs writes only a larger revision, and keeps what was revoked', async () => {
  process.env['DIARY'] = join(folder, 'diary.db')
  const { write, newest }: Diary = await import(join(root, 'examples/nextjs/diary.ts'))
  const drive = episode('drive', { during: is('Gear', 'D'), measures: { odometer: span('Odometer'), percent: span('BatteryLevel') } }) // prettier-ignore
  const at = (minute: number, data: FieldValues): object =>
    message.data(data, { vin: 'V', createdAt: new Date(startMs + minute * 60_000).toISOString() })
  const [found] = drive.in(normalize([at(0, { Gear: 'P' }), at(1, { Gear: 'D' }), at(11, { Gear: 'P' })]))
  if (found === undefined) throw new Error('There is no drive.')
  for (const [revision, minutes, shown] of [
    [2, 10, 10],
    [1, 5, 10],
    [3, 6, 6],
  ] as const) {
    write({ ...found, revision, durationMs: minutes * 60_000 })
    expect(newest()).toMatchObject([{ minutes: shown, miles: null, incomplete: 1 }])
  }
  write({ ...found, revision: 4, revoked: true })
  expect(newest()).toEqual([])
  write(found)
  expect(newest()).toEqual([])
  delete process.env['DIARY']
})

test('each template that stores episodes is among those above, or in test/postgres/logbook.test.ts', () => {
  const examples = join(root, 'examples')
  const stores = readdirSync(examples, { recursive: true, encoding: 'utf8' }).filter(
    (path) => /^[\w-]+\/[\w-]+\.ts$/.test(path) && / episode\(/.test(readFileSync(join(examples, path), 'utf8')),
  )
  expect(stores.toSorted()).toEqual(['charging-sessions/server.ts', 'logbook/episodes.ts', 'nextjs/receiver.ts', 'trips/server.ts']) // prettier-ignore
})
