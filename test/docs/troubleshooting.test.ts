import { globSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { refusalErrors } from '../../src/http/answers.ts'

const read = (path: string): string => readFileSync(path, 'utf8')
const page = read('docs/troubleshooting.md')
const answers = read('docs/http.md')
const sources = globSync(['src/**/*.ts', 'adapters/**/*.ts']).map((path) => read(path).replaceAll('\\`', '`'))

/** The strings of a union type. */
function union(path: string, name: string): readonly string[] {
  const [, members = ''] = new RegExp(`^export type ${name} =\\n((?:  \\| .*\\n)+)`, 'm').exec(read(path)) ?? []
  return [...members.matchAll(/'(\w+)'/g)].map(([, code = '']) => code)
}

/** The parts of a text that are always the same: those between its values. */
const fixedParts = (text: string, value: RegExp): readonly string[] =>
  text
    .split(value)
    .map((part) => part.trim())
    .filter((part) => part.length > 3)

const isOnPage = (text: string): boolean => page.includes(text)

test.each([
  ['of a FleethookError', page, union('src/base/errors.ts', 'ErrorCode'), 10],
  ['of a refusal', answers, refusalErrors, 15],
  ['of a ServiceError', page, union('src/service/client/service-error.ts', 'ServiceErrorCode'), 10],
])('its page lists every code %s', (_of, text, codes, least) => {
  expect(codes.length).toBeGreaterThan(least)
  expect(codes.filter((code) => !text.includes(`\`${code}\``))).toEqual([])
})

test('the page lists every line that is logged', () => {
  const logged = /\b(?:log|say)\.(?:warn|error)\(\s*(?:'([^']+)'|`((?:\$\{[^}]*\}|[^$])+?)`\s*[,)])/g
  const lines = sources.flatMap((source) =>
    [...source.matchAll(logged)].map(([, text, template]) => text ?? template ?? ''),
  )
  expect(lines.length).toBeGreaterThan(15)
  expect(lines.filter((line) => !fixedParts(line, /\$\{[^}]*\}/).every(isOnPage))).toEqual([])
})

test('every log line on the page is one of the sources', () => {
  const [, section = ''] = page.split('\n## The log says\n')
  const rows = section.slice(0, section.indexOf('\n## ')).matchAll(/^\| (`+)(.+?)\1 +\| (?:warn|error)/gm)
  const lines = [...rows].flatMap(([, , text = '']) => text.trim().split('`, `'))
  expect(lines.length).toBeGreaterThan(15)
  const isInSources = (part: string): boolean => sources.some((source) => source.includes(part))
  expect(lines.filter((line) => !fixedParts(line, /…/).every(isInSources))).toEqual([])
})
