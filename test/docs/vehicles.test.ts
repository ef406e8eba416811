import { globSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'

const page = readFileSync('docs/proof.md', 'utf8')

/** The words of a sentence, without marks. */
const words = (text: string): string =>
  text
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, ' ')
    .trim()

const [section = ''] = page
  .split('## Vehicles')
  .slice(1)
  .map((rest) => rest.split('\n## ')[0])
const promises = section
  .split('\n')
  .filter((line) => line.startsWith('- '))
  .map((line) => line.slice(2))

/** The names of the tests in a file, each behind the name of its `describe`. */
function namesIn(file: string): readonly string[] {
  let group = ''
  return readFileSync(file, 'utf8')
    .split('\n')
    .flatMap((line) => {
      const [, indent = '', kind, name = ''] = /^( *)(describe|test)\('((?:[^'\\]|\\.)*)'/.exec(line) ?? []
      if (kind === undefined) return []
      if (kind === 'describe') group = name
      return kind === 'describe' ? [] : [indent === '' ? name : `${group} ${name}`]
    })
}

const tests = globSync('test/{vehicles,when}/*.test.ts').flatMap(namesIn).map(words)

test('every promise about vehicles is the name of a test', () => {
  expect(promises.length).toBeGreaterThan(15)
  expect(promises.filter((promise) => !tests.includes(words(promise)))).toEqual([])
})
