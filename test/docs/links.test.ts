import { existsSync, globSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { basename, dirname, join, relative as pathBetween } from 'node:path'
import { describe, expect, test } from 'vitest'
import { filesWithOwner, withOwner } from '../../scripts/owner.ts'
import { absolute, relative } from '../../scripts/readme.ts'

const pages = globSync(['*.md', 'docs/**/*.md', 'bench/*.md', 'examples/*/README.md'], {
  exclude: (path) => path.includes('node_modules'),
})

const withoutCode = (text: string): string => text.replaceAll(/^```[\s\S]*?^```/gm, '')

/** The anchors that a web page of this file has for its headings. */
function anchorsOf(page: string): ReadonlySet<string> {
  const headings = withoutCode(readFileSync(page, 'utf8')).matchAll(/^#+ (.+)$/gm)
  const slug = (text: string): string =>
    text
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(/\s/g, '-')
  return new Set([...headings].map(([, text = '']) => slug(text)))
}

/** Whether a path exists with the same capital letters. Some disks ignore the difference. The web does not. */
function exists(path: string): boolean {
  return existsSync(path) && readdirSync(dirname(path)).includes(basename(path))
}

function isBroken(page: string, path: string, anchor: string): boolean {
  const target = path === '' ? page : join(dirname(page), path)
  if (!exists(target)) return true
  return anchor !== '' && (statSync(target).isDirectory() || !anchorsOf(target).has(anchor))
}

/** Addresses of this repository: pages that the package contains link to pages that it does not. */
const ownAddress =
  /https:\/\/(?:github\.com\/[^/\s]+\/fleethook\/(?:blob|tree)|raw\.githubusercontent\.com\/[^/\s]+\/fleethook)\/main\//g

/** The links of a page to other pages, `[text](path#anchor)`, each with its path and its anchor. */
const linksOf = (page: string): readonly RegExpExecArray[] => [
  ...withoutCode(readFileSync(page, 'utf8'))
    .replaceAll(ownAddress, `${pathBetween(dirname(page), '.') || '.'}/`)
    .matchAll(/\]\((?![a-z]+:)([^)#\s]*)#?([^)\s]*)\)/g),
]

test.each(pages)('every link of %s leads somewhere', (page) => {
  const links = linksOf(page)
  const broken = links.filter(([, path = '', anchor = '']) => isBroken(page, path, anchor)).map(([link]) => link)
  expect(broken).toEqual([])
})

describe('README.md is also a page of the registry and of the installed package', () => {
  const text = withoutCode(readFileSync('README.md', 'utf8'))

  const linksIn = (page: string): readonly string[] =>
    [...page.matchAll(/\]\(([^)]*)\)/g)].map(([, link = '']) => link).filter((link) => !link.startsWith('#'))

  test('its links are relative in the repository, and absolute in the package', () => {
    const links = linksIn(text)
    expect(links.length).toBeGreaterThan(10)
    expect(links.filter((link) => /^(https:|\/)/.test(link))).toEqual([])
    const packed = absolute(text)
    expect(linksIn(packed).filter((link) => !/^https:\/\/(raw\.githubuser|github\.)/.test(link))).toEqual([])
    expect(relative(packed)).toBe(text)
  })

  test('it has no HTML links, and its only image is the chart', () => {
    expect(text).not.toMatch(/<(a|img)\b/)
    expect([...text.matchAll(/!\[[^\]]*\]\(([^)]*)\)/g)].map(([, path]) => path)).toEqual(['bench/chart.svg'])
  })
})

test('one script sets the owner everywhere: in every address of the repository, and in CODEOWNERS', () => {
  const addresses =
    /(?<=(?:github|raw\.githubusercontent)\.com\/)[^/\s"]+(?=\/fleethook\b)|(?<=^\* @)\S+$|\bOWNER\b(?!')/gm
  const texts = globSync(
    ['*.{md,json}', '.github/CODEOWNERS', '{docs,src,adapters,examples,.github}/**/*.{md,json,ts,yml}'],
    {
      exclude: (path) => /node_modules|generated/.test(path),
    },
  )
  const found = texts.filter((path) => readFileSync(path, 'utf8').search(addresses) !== -1)
  expect(found.toSorted()).toEqual(filesWithOwner.filter((path) => found.includes(path)).toSorted())
  const owners = filesWithOwner.flatMap((path) =>
    [...withOwner(readFileSync(path, 'utf8'), 'some-fleet').matchAll(addresses)].map(([owner]) => owner),
  )
  expect(owners.length).toBeGreaterThan(20)
  expect(new Set(owners)).toEqual(new Set(['some-fleet']))
  expect(() => withOwner('', 'not an owner')).toThrow('cannot be an owner')
})
