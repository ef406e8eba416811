import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { buildPage, gzipBytesOf, landBudgetBytes, pageBudgetBytes, pageModule } from '../../scripts/inspector.ts'
import type { Item } from '../../src/inspector/page/answers.ts'
import { ListRows } from '../../src/inspector/page/rows.ts'

test('the generated page is what `npm run generate -- inspector` writes', async () => {
  const path = fileURLToPath(new URL('../../src/inspector/page.generated.ts', import.meta.url))
  const page = await buildPage()
  expect(await pageModule(page)).toBe(readFileSync(path, 'utf8'))
  const { page: pageBytes, land } = gzipBytesOf(page)
  expect(pageBytes).toBeLessThanOrEqual(pageBudgetBytes)
  expect(land).toBeLessThanOrEqual(landBudgetBytes)
})

test('no line of the land goes across the map from one edge to the other', async () => {
  const { assets } = await buildPage()
  const [, { body: outline = '' } = {}] = Object.entries(assets).find(([name]) => name.endsWith('.txt')) ?? []
  const rings = outline
    .split('z')
    .filter(Boolean)
    .map((ring) => ring.split('l')[1]?.split(' ').map(Number) ?? [])
  expect(rings.length).toBeGreaterThan(100)
  expect(Math.max(...rings.flat().map(Math.abs))).toBeLessThanOrEqual(3600)
  // One ring goes around the world: it is closed at its pole.
  const wide = rings.filter((ring) => ring.some((place, at) => at % 2 === 0 && Math.abs(place) > 1800))
  expect(wide).toHaveLength(1)
})

const id = '01a201b8-48a8-7000-b2fb-d79363f968e2'
const event = { topic: 'data', vin: 'A', receivedAt: '2026-11-22T05:26:24.168Z', data: { Gear: 'D' } }
const at = '2026-11-22T05:26:24.178Z'

test('a message has one row, even if the feed and the inbox report it several times', () => {
  const rows = new ListRows(500)
  const failed: Item = { kind: 'failed', at, id, event, attempt: 1, handler: 'save', error: 'Error: no' }
  expect(rows.add([{ kind: 'received', at, id, event }, failed, failed])).toBe(1)
  expect(rows.list()).toMatchObject([{ outcome: 'failed', failures: [{ handler: 'save' }], acknowledgedMs: 10 }])
  rows.addStored([{ id, state: 'settled', event }])
  expect(rows.list()).toMatchObject([{ outcome: 'handled', failures: [{ handler: 'save' }] }])
  rows.addStored([{ id, state: 'waiting', event }])
  expect(rows.add([{ kind: 'settled', at, id, event, outcome: 'handled', lagMs: 12, attempts: 2 }])).toBe(0)
  expect(rows.list()).toMatchObject([{ outcome: 'handled', lagMs: 12, attempts: 2 }])
})

test('a refused request that the feed sends again has one row', () => {
  const rows = new ListRows(500)
  const refused: Item = { kind: 'refused', at, error: 'secret_wrong', status: 403, count: 1 }
  rows.add([refused, { ...refused, count: 2 }])
  expect(rows.add([refused])).toBe(0)
  expect(rows.list()).toHaveLength(2)
})

test('keeps the newest rows', () => {
  const rows = new ListRows(3)
  for (let second = 0; second < 9; second += 1)
    rows.add([{ kind: 'refused', at: `2026-11-22T05:26:0${second}.000Z`, error: 'secret_wrong', count: second }])
  expect(rows.list().map(({ atMs }) => new Date(atMs).getUTCSeconds())).toEqual([8, 7, 6])
})
