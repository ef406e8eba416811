/* What the oldest Node does not know is in no statement of `node:sqlite`. */
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'

const root = join(import.meta.dirname, '../..')

test('no parameter has a number, because Node 22.13 takes it for a name', () => {
  const files = globSync('adapters/inbox/sqlite/**/*.ts', { cwd: root })
  expect(files.length).toBeGreaterThan(10)
  for (const file of files) expect(readFileSync(join(root, file), 'utf8').match(/\?\d/g), file).toBeNull()
})
