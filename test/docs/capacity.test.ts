import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'

const capacityOf = (path: string): string => readFileSync(path, 'utf8').split('\n## Capacity\n')[1] ?? ''
const page = capacityOf('bench/README.md')
const advice = capacityOf('docs/operating.md')
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
  const rows = page
    .split('\n')
    .filter((line) => /^\| +[\d,]+ \| +[\d,]+ \|/.test(line))
    .map(cellsOf)
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

test('the processes that the page recommends can handle the peak with 70 % of a core each', () => {
  const processes = (vehicles: string, inbox: string): number => {
    const sums = new RegExp(`^\\| +${vehicles} \\| +[\\d,]+ \\|.*$`, 'm').exec(page)?.[0] ?? ''
    const [cores] = cellsOf(sums)[['SQLite', 'Postgres', 'Kafka'].indexOf(inbox) + 3]?.split(' · ') ?? []
    return Math.ceil(number(cores) / 0.7)
  }
  expect(advice).toContain(`${processes('100,000', 'Kafka')} processes with Kafka`)
  expect(advice).toContain(`${processes('100,000', 'Postgres')} with Postgres`)
  expect(advice).toContain(`${processes('1,000,000', 'Kafka')} processes at 70 % of a core`)
})
