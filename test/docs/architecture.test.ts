import { existsSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'

const page = readFileSync('docs/architecture.md', 'utf8')
const code = [...page.matchAll(/`([^`\n]+)`/g)].map(([, text = '']) => text)
const isPath = (text: string): boolean => /^(src|adapters)\//.test(text)

test('every file and folder that the map names exists', () => {
  const paths = code.filter(isPath)
  expect(paths.length).toBeGreaterThan(40)
  expect(paths.filter((path) => !existsSync(path))).toEqual([])
})

test('every function that the map names stands in the file that it names with it', () => {
  const named = [
    ...page.matchAll(
      /`(#?\w+)`(?: of `(\w+)`)?(?:,? (?:and|such as) `\w+`)*(?:'s function)? (?:in|from|of)\s+`((?:src|adapters)\/[^`]+)`/g,
    ),
  ]
  expect(named.length).toBeGreaterThan(25)
  const missing = named.flatMap(([, name = '', owner, path = '']) => {
    const text = readFileSync(path, 'utf8')
    return [name, ...(owner === undefined ? [] : [owner])]
      .filter((word) => !new RegExp(`(?<![\\w])${word.replace('#', '#?')}(?!\\w)`).test(text))
      .map((word) => `${word} in ${path}`)
  })
  expect(missing).toEqual([])
})
