/**
 * Writes the lists of docs/troubleshooting.md and the table of docs/http.md from what stands beside the code:
 *
 * - a comment on each member of `ErrorCode`, `RefusalError` and `ServiceErrorCode`,
 * - `// What to do: …` in front of a line of the log or the text of an error. The row begins with the next text that has a space in it;
 *   `hint` in place of the advice takes the text behind that one, and `// What to do about …: …` with code spans names the lines itself.
 */
import { globSync } from 'node:fs'
import { refusalErrors, refuse } from '../src/http/answers.ts'
import { filled, read, root, writePages } from './tables.ts'

interface Row {
  /** The texts that an operator sees and looks for. */
  readonly seen: readonly string[]
  readonly todo: string
  /** Whether the log has it as an error. */
  readonly isError: boolean
}

/** The list of docs/troubleshooting.md for the lines and errors of a file. */
const sections: readonly (readonly [name: string, files: RegExp])[] = [
  ['sqlite', /^adapters\/inbox\/sqlite/],
  ['kafka', /^adapters\/inbox\/kafka/],
  ['postgres', /^adapters\/inbox\/postgres/],
  ['workers', /^adapters\/inbox\/durable-object/],
  ['cli', /^adapters\/cli\//],
  ['client lines', /^src\/service\/client\//],
  ['server', /^adapters\/[^/]+\.ts$/],
  ['log', /./],
]

/** The comment on each member of a union type, by the member. */
export function meanings(path: string, type: string): ReadonlyMap<string, string> {
  const [, members = ''] = new RegExp(`^export type ${type} =\\n((?: {2,}.*\\n)+)`, 'm').exec(read(path)) ?? []
  const found = [...members.matchAll(/^  (?:\/\*\*([\s\S]*?)\*\/\n  )?\| '(\w+)'/gm)]
  return new Map(found.map(([, text = '', code = '']) => [code, text.replaceAll(/\s*\n\s*\*?\s*/g, ' ').trim()]))
}

const comments = /^[ \t]*\/\/ (What to do\b.*(?:\n[ \t]*\/\/ .+)*)\n/gm
const advice = /^What to do(?: about `(.+?)`)?: (.+)$/
const literal = /'((?:[^'\\\n]|\\.)*)'|"([^"\n]*)"|`([^`]*)`/g

/** The rows of a source file. */
function rowsOf(source: string, path: string): readonly Row[] {
  const plain = source.replaceAll('\\`', 'ˋ')
  const found = [...plain.matchAll(comments)]
  if (found.length < plain.split('// What to do').length - 1)
    throw new Error(`${path}: write "What to do" on a line of its own.`)
  return found.map((match) => {
    const [whole, comment = ''] = match
    const before = plain.slice(0, match.index)
    const after = plain.slice(match.index + whole.length)
    const [, about, said = ''] = advice.exec(comment.replaceAll(/\s*\n\s*\/\/ /g, ' ')) ?? []
    const [line = '', hint = ''] = [...after.slice(0, 1_500).matchAll(literal)]
      .map((texts) => texts.slice(1).find((found) => found !== undefined) ?? '')
      .filter((found) => found.includes(' '))
    // What follows the first `: …` differs each time.
    const fixed = line
      .replaceAll(/\$\{[^}]*\}/g, '…')
      .replace(/(: …).*$/, '$1')
      .replace(/\.$/, '')
    const [, level] =
      /\.(warn|error)\($/.exec(before.trimEnd()) ??
      /(?<!console)(?:\.|\b)(warn|error|tell)\w*\(/.exec(after.slice(0, 400)) ??
      []
    return {
      seen: about?.split('`, `') ?? [fixed],
      todo: said === 'hint' ? hint : said,
      isError: level === 'error' || level === 'tell',
    }
  })
}

const code = (line: string): string => (/[ˋ`]/.test(line) ? `\`\` ${line.replaceAll('ˋ', '`')} \`\`` : `\`${line}\``)

/** A list: what an operator sees, then the advice. Rows with the same advice are one item. Errors of the log come first, in bold. */
function list(rows: readonly Row[]): string {
  const merged = new Map<string, Row>()
  for (const { seen, todo, isError } of rows) {
    const key = `${isError} ${todo}`
    const all = new Set([...(merged.get(key)?.seen ?? []), ...seen])
    merged.set(key, { seen: [...all].toSorted(), todo, isError })
  }
  // By their words, so that code can move without moving its row.
  const first = ({ seen }: Row): string => (seen[0] ?? '').replace(/^[^a-z]+/i, '').toLowerCase()
  return [...merged.values()]
    .toSorted((a, b) => Number(b.isError) - Number(a.isError) || (first(a) < first(b) ? -1 : 1))
    .map(({ seen, todo, isError }) => {
      const bold = isError ? '**' : ''
      return `- ${bold}${seen.map(code).join(', ')}${bold}: ${todo}`
    })
    .join('\n')
}

const rowsOfCodes = (path: string, type: string): readonly Row[] =>
  [...meanings(path, type)].map(([name, todo]) => ({ seen: [name], todo, isError: false }))

function tables(): ReadonlyMap<string, string> {
  const bySection = new Map<string, Row[]>(sections.map(([name]) => [name, []]))
  for (const path of globSync('{src,adapters}/**/*.ts', { cwd: root }).toSorted()) {
    const file = path.replaceAll('\\', '/')
    if (file.includes('.generated.')) continue
    const name = sections.find(([, files]) => files.test(file))?.[0] ?? ''
    bySection.get(name)?.push(...rowsOf(read(file), file))
  }
  const refusals = meanings('src/http/answers.ts', 'RefusalError')
  const answers = refusalErrors.map((error) => {
    const { status, body } = refuse({ error })
    return `| \`${error}\` | ${status}, ${JSON.parse(body).code} | ${refusals.get(error)} |`
  })
  return new Map([
    ...[...bySection].map(([name, rows]) => [name, list(rows)] as const),
    ['codes', list(rowsOfCodes('src/base/errors.ts', 'ErrorCode'))],
    ['client', list(rowsOfCodes('src/service/client/service-error.ts', 'ServiceErrorCode'))],
    [
      'refusals',
      [
        '| `error` | status, `code` | what happened, and what to do |',
        '| --- | --- | --- |',
        '| none | 200, 0 | Accepted, `unknown` events included. |',
        ...answers,
      ].join('\n'),
    ],
  ])
}

/** The pages with their lists and the table as the sources have them. */
export const pages = (): Promise<ReadonlyMap<string, string>> =>
  filled(['docs/troubleshooting.md', 'docs/http.md'], tables())

if (import.meta.main) writePages(await pages())
