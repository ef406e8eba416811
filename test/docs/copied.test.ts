/* Examples are copied as they are. */
import { globSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'

const pages = globSync(['README.md', 'docs/*.md', 'examples/*/README.md'])
const sources = globSync(['src/**/*.ts', 'adapters/**/*.ts']).filter((path) => !path.includes('.generated.'))
const read = (path: string): string => readFileSync(path, 'utf8')

test('an example that stores a field says what it does with a message that lacks it', () => {
  const blocks = [...pages, ...sources].flatMap((path) =>
    [...read(path).matchAll(/```ts[^\n]*\n([\s\S]*?)```/g)].map(([, code = '']) => ({ path, code })),
  )
  const storing = blocks.filter(({ code }) => /INSERT|\.batch\(|rows/.test(code) && /data\.[A-Z]\w+/.test(code))
  expect(storing.length).toBeGreaterThan(3)
  expect(storing.filter(({ code }) => !code.includes('fields: [')).map(({ path }) => path)).toEqual([])
})

test('who advises a key against duplicates says what the second row needs', () => {
  const advice = pages.flatMap((path) =>
    read(path)
      .split(/\n\n|\n(?=[|-])/)
      .filter((paragraph) => /unique key|`event\.id`[^.]* as\s+the\s+key/.test(paragraph))
      .map((paragraph) => ({ path, paragraph })),
  )
  expect(advice.length).toBeGreaterThan(3)
  expect(advice.filter(({ paragraph }) => !paragraph.includes('ON CONFLICT'))).toEqual([])
})
