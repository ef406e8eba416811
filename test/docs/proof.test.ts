import { globSync, readdirSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'

const page = readFileSync('docs/proof.md', 'utf8')

const cellsOf = (line: string): readonly string[] =>
  line
    .split('|')
    .slice(1, -1)
    .map((cell) => cell.trim())

/** The rows of all tables of a page of figures, by their headings. */
function rowsOf(piece: string): readonly Readonly<Record<string, string>>[] {
  const tables = readFileSync(`docs/figures/${piece}.md`, 'utf8').match(/(?:^\|.*\n)+/gm) ?? []
  return tables.flatMap((text) => {
    const [head = '', , ...rows] = text.trimEnd().split('\n')
    const names = cellsOf(head)
    return rows.map((row) => Object.fromEntries(cellsOf(row).map((cell, index) => [names[index] ?? '', cell])))
  })
}

/** What a column of a page adds up to, in the rows that have each of `is`. */
function sum(piece: string, column: string, is: Readonly<Record<string, string>> = {}): number {
  const rows = rowsOf(piece).filter(
    (row) => row[column] !== undefined && Object.entries(is).every(([name, value]) => row[name] === value),
  )
  return rows.reduce((total, row) => total + Number(row[column]), 0)
}

test('the sums of the page follow from the figures', () => {
  const soak = rowsOf('postgres-soak').find(({ run }) => run === 'everything') ?? {}
  const faults = Object.entries(soak).filter(([name]) => /killed|frozen|stopped|cut|forwarding|promoted/.test(name))
  const kills = rowsOf('kafka-soak').flatMap(
    (row) => row['what happened']?.match(/\d+(?= (?:brokers|receivers|handler))/g) ?? [],
  )
  const deploys = rowsOf('deploys').filter(
    ({ Caddyfile, ...row }) =>
      Caddyfile === undefined && row['inside a gap'] === undefined && row['not acknowledged'] === '0',
  )
  const expected = [
    `${figure(sum('process-killed', 'acknowledged', { signal: 'SIGKILL' }))} acknowledged`,
    `${figure(sum('process-killed', 'acknowledged', { signal: 'SIGTERM' }))} acknowledged`,
    `${figure(sum('deploys-accounting', 'sent'))} sent`,
    `${figure(sum('power-cut', 'acknowledged', { disk: 'syncs' }))} acknowledged`,
    `${figure(sum('failing-disk', 'acknowledged'))} acknowledged`,
    `${figure(sum('small-volume', 'acknowledged'))} acknowledged`,
    `${figure(sum('workers-kill', 'acknowledged', { inbox: 'durableObjectInbox' }))} acknowledged`,
    `${figure(sum('process-edges', 'changes'))} changes`,
    `${figure(sum('workers-edges', 'changes'))} changes`,
    `Postgres: ${faults.reduce((total, [, count]) => total + Number(count), 0)} faults`,
    `Kafka: ${kills.reduce((total, count) => total + Number(count), 0)} processes`,
    ...['kafka-moves', 'kafka-kills', 'kafka-network'].map(
      (piece) => `${figure(sum(piece, 'acknowledged'))} acknowledged`,
    ),
    `none of ${figure(deploys.reduce((total, { sent }) => total + Number(sent), 0))} messages`,
  ]
  expect(expected.filter((text) => !page.includes(text))).toEqual([])
})

test('no message was lost where the page says so', () => {
  const pieces = [
    'process-killed',
    'power-cut',
    'workers-kill',
    'kafka-soak',
    'kafka-moves',
    'kafka-kills',
    'kafka-network',
  ]
  const lost = pieces.flatMap((piece) =>
    rowsOf(piece).filter(
      (row) => row['lost'] !== undefined && row['lost'] !== '0' && !/control/.test(Object.values(row).join()),
    ),
  )
  expect(lost).toEqual([])
  expect(sum('deploys-accounting', 'unaccounted for')).toBe(0)
  expect(sum('failing-disk', 'acknowledged and lost')).toBe(0)
})

test('a test writes each page of figures, and the page quotes it', () => {
  const pieces = readdirSync('docs/figures').map((name) => name.replace(/\.md$/, ''))
  const tests = globSync('test/**/*.ts').map((path) => readFileSync(path, 'utf8'))
  expect(pieces.filter((piece) => !tests.some((text) => text.includes(`'${piece}'`)))).toEqual([])
  expect(pieces.filter((piece) => !page.includes(`figures/${piece}.md`))).toEqual([])
})

test('each page of figures has the command, the commit, the day, the machine and the versions', () => {
  const missing = globSync('docs/figures/*.md').flatMap((path) => {
    const text = readFileSync(path, 'utf8')
    return ['command', 'commit', 'day', 'machine', 'Node']
      .filter((what) => !new RegExp(`^\\| ${what} +\\| \\S`, 'm').test(text))
      .map((what) => `${path} lacks ${what}`)
  })
  expect(missing).toEqual([])
})

const figure = (value: number): string => value.toLocaleString('en-US')
