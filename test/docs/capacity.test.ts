import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'

const page = readFileSync('docs/capacity.md', 'utf8')
const cellsOf = (line: string): readonly string[] =>
  line
    .split('|')
    .slice(1, -1)
    .map((cell) => cell.trim())
const number = (text: string = ''): number => Number(text.replaceAll(',', ''))

test('the sums of the page follow from its figures', () => {
  const figures = ['SQLite', 'Postgres', 'Kafka'].map((inbox) => {
    const [, cpuUs, , kept] = cellsOf(new RegExp(`^\\| ${inbox} +\\|.*$`, 'm').exec(page)?.[0] ?? '')
    return { cpuUs: number(cpuUs), kept: number(kept) }
  })
  const rows = page.split('\n').filter((line) => /^\| +[\d,]+ \| +[\d,]+ \|/.test(line)).map(cellsOf) // prettier-ignore
  expect(rows.length).toBe(6)
  for (const [vehicles, day, peak, ...stores] of rows) {
    expect(number(day)).toBe(number(vehicles) * 5_000)
    expect(number(peak)).toBeCloseTo(number(vehicles) * 0.15)
    for (const [at, { cpuUs, kept }] of figures.entries()) {
      const [cores, bytes = ''] = stores[at]?.split(' · ') ?? []
      const [amount, unit = ''] = bytes.split(' ')
      const scale = { MB: 1e6, GB: 1e9, TB: 1e12 }[unit] ?? Number.NaN
      expect(number(cores) / ((number(peak) * (cpuUs + 23)) / 1e6)).toBeCloseTo(1, 2)
      expect((number(amount) * scale) / (number(day) * kept)).toBeCloseTo(1, 2)
    }
  }
})
