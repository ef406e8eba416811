import { globSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { meanings, pages } from '../../scripts/troubleshooting.ts'
import { refusalErrors } from '../../src/http/answers.ts'

const read = (path: string): string => readFileSync(path, 'utf8')
const page = read('docs/troubleshooting.md')
const sources = globSync(['src/**/*.ts', 'adapters/**/*.ts']).map((path) => read(path).replaceAll('\\`', '`'))

/** The parts of a text that are always the same: those between its values. */
const fixedParts = (text: string, value: RegExp): readonly string[] =>
  text
    .split(value)
    .map((part) => part.trim())
    .filter((part) => part.length > 3)

const isOnPage = (text: string): boolean => page.includes(text)

test.each(['docs/troubleshooting.md', 'docs/http.md'])(
  '%s is what `npm run generate -- troubleshooting` makes',
  async (path) => {
    expect((await pages()).get(path)).toBe(read(path))
  },
)

test.each([
  ['a FleethookError', 'docs/troubleshooting.md', 'src/base/errors.ts', 'ErrorCode', 10],
  ['a refusal', 'docs/http.md', 'src/http/answers.ts', 'RefusalError', 15],
  ['a ServiceError', 'docs/troubleshooting.md', 'src/service/client/service-error.ts', 'ServiceErrorCode', 10],
])('every code of %s says what to do, and has its row in %s', (_of, path, source, type, least) => {
  const codes = meanings(source, type)
  expect(codes.size).toBeGreaterThan(least)
  if (type === 'RefusalError') expect([...codes.keys()]).toEqual(refusalErrors)
  const lacking = [...codes].filter(([code, todo]) => todo.length < 20 || !read(path).includes(`\`${code}\``))
  expect(lacking).toEqual([])
})

test('the page has each check of doctor', () => {
  const checks = new Set(
    [
      ...read('adapters/cli/doctor.ts').matchAll(
        /'((?:secret|webhook|proxy|inbox|postgres|receiver|vehicles)\.[a-z]+)'/g,
      ),
    ].map(([, id = '']) => id),
  )
  expect(checks.size).toBeGreaterThan(25)
  expect([...checks].filter((id) => !isOnPage(`\`${id}\``))).toEqual([])
})

test('the page lists every line that is logged', () => {
  const logged = /\b(?:log|say)\.(?:warn|error)\(\s*(?:\/\/[^\n]*\s*)*(?:'([^']+)'|`((?:\$\{[^}]*\}|[^$])+?)`\s*[,)])/g
  const lines = sources.flatMap((source) =>
    [...source.matchAll(logged)].map(([, text, template]) => text ?? template ?? ''),
  )
  expect(lines.length).toBeGreaterThan(15)
  expect(lines.filter((line) => !fixedParts(line, /\$\{[^}]*\}/).every(isOnPage))).toEqual([])
})

test('a line that is put together elsewhere has its comment in front of the call', () => {
  const call = /\b(?:log|say)\.(?:warn|error)\(\s*(?:\/\/[^\n]*\n\s*)*([^'`\s/][^,)]*)/g
  const bare = globSync(['src/**/*.ts', 'adapters/**/*.ts']).flatMap((path) => {
    const source = read(path)
    return [...source.matchAll(call)]
      .filter(({ index }) => !source.slice(0, index).split('\n').slice(-25).join('\n').includes('What to do'))
      .map(([, line]) => line)
  })
  // Each of these stands behind a comment where it is made: two lines of the secret, the line about a clock, and what the client says.
  expect([...new Set(bare)].toSorted()).toEqual(['clockAhead', 'inCommandLineTerms(message', 'line'])
})

test('every line that a comment names by itself is one of the sources', () => {
  const named = sources.flatMap((source) => [
    ...source.matchAll(/\/\/ What to do about (`[^\n]+(?:\n +\/\/ [^\n]+)*)/g),
  ])
  const lines = named.flatMap(([, text = '']) => {
    const [titles = ''] = text.replaceAll(/\n +\/\/ /g, ' ').split('`: ')
    return titles.slice(1).split('`, `')
  })
  expect(lines.length).toBeGreaterThan(30)
  const isInSources = (part: string): boolean => sources.some((source) => source.includes(part))
  expect(lines.filter((line) => !fixedParts(line, /…/).every(isInSources))).toEqual([])
})
