// What somebody feels who reads the code: how long a thought is, how many functions and fields he keeps in mind. How many files he opens is in test/runtimes/path.test.ts.
import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { exceptions, type Measure } from './exceptions.ts'
import { type Measured, measuresOf } from './measures.ts'
import { filesUnder, root } from './project.ts'

/** The most, in code that ships and in everything else. */
const most: Readonly<Record<Measure, { readonly code: number; readonly tests: number }>> = {
  lines: { code: 60, tests: 80 },
  functions: { code: 15, tests: 15 },
  fields: { code: 15, tests: 15 },
}

/** The names that the interface of inboxes has, for who reads all of it. */
const mostNames = 35

const isCode = (name: string): boolean => /^(src|adapters)\//.test(name)
const limitOf = (measure: Measure, name: string): number => most[measure][isCode(name) ? 'code' : 'tests']

/** The largest of each name: constructors and callbacks share theirs. */
function largest(all: readonly Measured[], measure: Measure): ReadonlyMap<string, number> {
  const found = new Map<string, number>()
  for (const each of all)
    if (each[measure] > limitOf(measure, each.name))
      found.set(each.name, Math.max(found.get(each.name) ?? 0, each[measure]))
  return found
}

const sources = ['src', 'adapters', 'test', 'bench', 'scripts'].flatMap(filesUnder)
const all = sources
  .filter((path) => /\.tsx?$/.test(path) && !/\.d\.ts$|generated/.test(path))
  .flatMap((path) => measuresOf(path, readFileSync(root + path, 'utf8')))

describe.each(Object.keys(most) as readonly Measure[])('the %s of a function or class', (measure) => {
  const over = largest(all, measure)
  const known = new Map(exceptions[measure])

  test('are at most what one can follow, but for the named ones, which only shrink', () => {
    const grown = [...over].filter(([name, count]) => count > (known.get(name) ?? 0))
    expect(
      grown.map(
        ([name, count]) => `${name} has ${count} ${measure}, at most ${known.get(name) ?? limitOf(measure, name)}`,
      ),
    ).toEqual([])
  })

  test('no named one is left that is within the limit: take it out of test/house/exceptions.ts', () => {
    expect([...known.keys()].filter((name) => !over.has(name))).toEqual([])
  })
})

test('the interface of inboxes has few names', () => {
  const text = readFileSync(`${root}src/inbox/inbox.ts`, 'utf8')
  const namesOf = (name: string, members: RegExp): readonly string[] => {
    const [, body = ''] = new RegExp(`export interface ${name} \\{\\n([^]*?)\\n\\}`).exec(text) ?? []
    return [...body.matchAll(members)].map(([, member = '']) => member)
  }
  const names = ['Inbox', 'InboxHost', 'InboxFactory'].flatMap((name) =>
    namesOf(name, /^ {2}(?:readonly )?(\w+)\??[:(]/gm),
  )
  expect(names.length).toBeGreaterThan(20)
  expect(names.length).toBeLessThanOrEqual(mostNames)
  const written = namesOf('Inbox', /^ {2}(?:readonly )?(\w+)[:(]/gm)
  expect(written, 'What an author writes.').toHaveLength(8)
})

test('control: a long function, many functions and many fields are found', () => {
  const lines = Array.from({ length: 70 }, (_, index) => `  const f${index} = (): number => ${index}`).join('\n')
  const fields = Array.from({ length: 16 }, (_, index) => `  f${index} = ${index}`).join('\n')
  const text = `export function long(): void {\n${lines}\n}\nexport class Wide {\n${fields}\n}\n`
  const found = measuresOf('src/core/a.ts', text)
  expect(found.find(({ name }) => name === 'src/core/a.ts#long')).toMatchObject({ lines: 72, functions: 70 })
  expect(found.find(({ name }) => name === 'src/core/a.ts#Wide')).toMatchObject({ fields: 16 })
})

describe('sentences', () => {
  /** Pronouns that send the reader back to look for their noun, and idioms that nobody says. Name the thing. */
  const readTwice =
    /\b(?:that of|that which|those of|those that|ones? that|all the same|by then|of then|at the most)\b|\brests\b|\bmeanwhile [a-z]/gi
  const count = (text: string): number => text.match(readTwice)?.length ?? 0
  /** May only fall. */
  const mostReadTwice = 4

  test('in docs, comments and texts are read once: few need a second look', () => {
    const paths = [
      ...['src', 'adapters', 'docs'].flatMap(filesUnder),
      'README.md',
      'CONTRIBUTING.md',
      'bench/README.md',
    ]
    const found = paths
      .filter((path) => /\.(ts|md)$/.test(path) && !/generated|node_modules|vitepress/.test(path))
      .flatMap((path) =>
        readFileSync(root + path, 'utf8')
          .split('\n')
          .filter((line) => count(line) > 0)
          .map((line) => `${path}: ${line.trim()}`),
      )
    expect(found.length <= mostReadTwice ? [] : found).toEqual([])
  })

  test('control: such a sentence is found, and an option of the name is not', () => {
    expect(count('The time is that of the receipt, by then the lane rests.')).toBe(3)
    expect(count('With `meanwhile`, the disk keeps it. import { Meanwhile } from')).toBe(0)
  })
})

describe('the formatter has its way', () => {
  /** The lines that keep code from it: what follows is no list, or the comment is behind code. */
  const unformatted = (text: string): readonly string[] => {
    const lines = text.split('\n')
    return lines.filter((line, index) => {
      if (!line.includes('prettier-ignore')) return false
      const isAlone = /^\s*\/\/ prettier-ignore$/.test(line)
      return !isAlone || !/^\s*(?:\w+: |const \w+(?:: .*)? = |test\.each\()?\[/.test(lines[index + 1] ?? '')
    })
  }
  const files = [...sources, ...filesUnder('examples')].filter(
    (path) => /\.(tsx?|mjs|js)$/.test(path) && path !== 'test/house/readable.test.ts',
  )

  test('no line of code is kept from it, only tables of data', () => {
    const found = files.filter((path) => unformatted(readFileSync(root + path, 'utf8')).length > 0)
    expect(found).toEqual([])
  })

  test('control: code that is kept from it is found, and a table is not', () => {
    expect(unformatted('run() // prettier-ignore\n')).toHaveLength(1)
    expect(unformatted('// prettier-ignore\nrun()\n')).toHaveLength(1)
    expect(unformatted('  // prettier-ignore\n  says: [[0, 1], [1, 2]],\n')).toEqual([])
  })
})
