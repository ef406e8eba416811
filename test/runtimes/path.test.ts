import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'

/** The files of the inbox that one message runs through on SQLite: four that gather what a commit writes, and five that write it. */
const mostFiles = 9

test('one message opens few files of the SQLite inbox', () => {
  const cwd = fileURLToPath(new URL('../..', import.meta.url))
  const printed = execFileSync(process.execPath, ['bench/path.ts', '--list'], { cwd, encoding: 'utf8' })
  const [, ofSqlite = ''] = printed.split(/^memory: .*$/m)
  const files = [...ofSqlite.matchAll(/^adapters\/inbox\/\S+/gm)].map(([path]) => path)
  expect(files.length).toBeGreaterThan(5)
  expect(files.length).toBeLessThanOrEqual(mostFiles)
})
