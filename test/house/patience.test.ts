import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { longestMs, patience } from '../vitest.config.ts'
import { filesUnder, root } from './project.ts'

/** What has a time in these is no wait of a test: a lock of SQLite, a transaction, and options that are refused. */
const others = new Set([
  'test/client/errors.test.ts',
  'test/faults/process/program.ts',
  'test/house/patience.test.ts',
  'test/http/options.test.ts',
  'test/kafka/own-server.test.ts',
  'test/postgres/clients/clients.test.ts',
])

/** The last argument of a test, alone on its line or behind the body, or its options before it. */
const limits = /^ {0,4}\}, (\d\d+_000)\)|^ +(\d\d+_000),\n *\)|\{ timeout: (\d\d+_000) \},\s+(?:async|\(|test)/gm

test('no wait gives up sooner than those that name no time: on a busy machine it would fail by chance', () => {
  const hurried = filesUnder('test')
    .filter((path) => path.endsWith('.ts') && !others.has(path))
    .flatMap((path) =>
      [...readFileSync(`${root}${path}`, 'utf8').matchAll(/\btimeout: ([\d_]+)|\bvi\.wait.*, ([\d_]+)\)/g)]
        .filter(([, named, given]) => Number((named ?? given ?? '').replaceAll('_', '')) < patience.poll.timeout)
        .map(([wait]) => `${path}: ${wait}`),
    )
  expect(hurried).toEqual([])
})

test('no test gives up sooner than those that name no time', () => {
  const hurried = filesUnder('test')
    .filter((path) => path.endsWith('.test.ts') && !path.startsWith('test/kafka/'))
    .flatMap((path) =>
      [...readFileSync(`${root}${path}`, 'utf8').matchAll(limits)]
        .filter((found) => Number((found[1] ?? found[2] ?? found[3] ?? '').replaceAll('_', '')) < longestMs)
        .map(([limit]) => `${path}: ${limit.trim()}`),
    )
  expect(hurried).toEqual([])
})
