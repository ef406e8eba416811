import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { reliedOn, specified } from '../interface/coverage.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const page = readFileSync(`${root}docs/decisions/0021-interface.md`, 'utf8')

test('every section of the specification, and each item that clients rely on, has one row with files that exist', () => {
  expect([specified.length, reliedOn.length]).toEqual([22, 17])
  const rows = [...specified, ...reliedOn]
  expect(new Set(rows.map(({ section }) => section)).size).toBe(rows.length)
  const files = rows.flatMap(({ module, sandbox, tests }) => [...module, ...sandbox, ...tests])
  expect(files.filter((path) => !existsSync(root + path))).toEqual([])
})

test('our readings are numbered without a missing number', () => {
  const numbers = [...page.matchAll(/^(\d+)\. /gm)].map(([, number]) => Number(number))
  expect(numbers).toEqual(Array.from({ length: numbers.length }, (_, index) => index + 1))
})
