import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'
import { reliedOn, specified } from '../interface/coverage.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const page = readFileSync(`${root}docs/decisions/0021-interface.md`, 'utf8')

/** The sections of the specification that say something about the interface. */
const sections = [
  'What the service does',
  'Streaming config',
  'Business webhook',
  'Other resources',
  'States and transitions',
  'Business configuration',
  'Per-vehicle streaming config',
  'Streaming by SSE',
  'Vehicles',
  'Energy sites',
  'Commands',
  'Requests refused with 403 insufficient_scope',
  'Consented products',
  'Authentication',
  'Authentication of outgoing webhook messages',
  'Webhook delivery',
  'Topics',
  'Payload of a data message',
  'Server-Sent Events',
  'Errors',
  'Limits',
  'Versioning',
]

/** What public clients of the service rely on. */
const items = [
  ...['Config', 'Products', 'Planned end of a stream', 'Snapshot', 'Items', 'More topics', 'States', 'Location'],
  ...['Enums', 'Numbers', 'Refusals', 'Commands of the maker', 'Documents', 'Chunked GET', 'VIN'],
]

test('every section of the specification has one row, and so has each item that clients rely on', () => {
  expect(specified.map(({ section }) => section)).toEqual(sections)
  expect(reliedOn.map(({ section }) => section)).toEqual(items)
})

describe('the modules and the tests of a row exist', () => {
  const rows = [...specified, ...reliedOn]
  test.each(rows.map((row) => [row.section, row] as const))('%s', (_section, { module, sandbox, tests }) => {
    for (const files of [module, sandbox, tests]) {
      expect(files.length).toBeGreaterThan(0)
      expect(files.filter((path) => !existsSync(root + path))).toEqual([])
    }
    expect(tests.filter((path) => !path.startsWith('test/'))).toEqual([])
  })
})

test('our readings are numbered without a missing number', () => {
  const numbers = [...page.matchAll(/^(\d+)\. /gm)].map(([, number]) => Number(number))
  expect(numbers).toEqual(Array.from({ length: numbers.length }, (_, index) => index + 1))
})
