import { existsSync, globSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { describe, expect, test } from 'vitest'

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

/** The links of a page to other pages, `[text](path#anchor)`, each with its path and its anchor. */
const linksOf = (page: string): readonly RegExpExecArray[] => [
  ...withoutCode(readFileSync(page, 'utf8')).matchAll(/\]\((?![a-z]+:)([^)#\s]*)#?([^)\s]*)\)/g),
]

test.each(pages)('every link of %s leads somewhere', (page) => {
  const links = linksOf(page)
  const broken = links.filter(([, path = '', anchor = '']) => isBroken(page, path, anchor)).map(([link]) => link)
  expect(broken).toEqual([])
})

describe('the registry shows README.md with its links resolved against the repository', () => {
  const manifest: { repository?: { url?: string } } = JSON.parse(readFileSync('package.json', 'utf8'))

  test('the manifest names the repository', () => {
    expect(manifest.repository?.url).toMatch(/^git\+https:\/\/[^/]+\/[^/]+\/[^/]+\.git$/)
  })

  test('every link of README.md leads to a file of the repository', () => {
    const paths = linksOf('README.md')
      .map(([, path = '']) => path)
      .filter((path) => path !== '')
    expect(paths.length).toBeGreaterThan(10)
    const outside = (path: string): boolean => path.startsWith('/') || path.split('/').includes('..')
    const ignored = new Set(
      readFileSync('.gitignore', 'utf8')
        .split('\n')
        .map((line) => line.replaceAll('/', '')),
    )
    expect(paths.filter((path) => outside(path) || ignored.has(path.split('/')[0] ?? ''))).toEqual([])
  })

  test('README.md has no HTML links, which the registry resolves in another way, and its only image is the chart', () => {
    const text = withoutCode(readFileSync('README.md', 'utf8'))
    expect(text).not.toMatch(/<(a|img)\b/)
    expect([...text.matchAll(/!\[[^\]]*\]\(([^)]*)\)/g)].map(([, path]) => path)).toEqual(['bench/chart.svg'])
    expect(existsSync('bench/chart.svg')).toBe(true)
  })
})
