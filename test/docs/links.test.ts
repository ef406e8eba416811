import { existsSync, globSync, readFileSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, test } from 'vitest'

const pages = globSync(['*.md', 'docs/**/*.md', 'bench/*.md', 'examples/*/README.md'], {
  exclude: (path) => path.includes('node_modules'),
})

const withoutCode = (text: string): string => text.replaceAll(/^```[\s\S]*?^```/gm, '')

/** The anchors that a page's headings have where it is shown. */
function anchorsOf(page: string): ReadonlySet<string> {
  const headings = withoutCode(readFileSync(page, 'utf8')).matchAll(/^#+ (.+)$/gm)
  const slug = (text: string): string =>
    text
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(/\s/g, '-')
  return new Set([...headings].map(([, text = '']) => slug(text)))
}

function isBroken(page: string, path: string, anchor: string): boolean {
  const target = path === '' ? page : join(dirname(page), path)
  if (!existsSync(target)) return true
  return anchor !== '' && (statSync(target).isDirectory() || !anchorsOf(target).has(anchor))
}

test.each(pages)('every link of %s leads somewhere', (page) => {
  const links = [...withoutCode(readFileSync(page, 'utf8')).matchAll(/\]\((?![a-z]+:)([^)#\s]*)#?([^)\s]*)\)/g)]
  const broken = links.filter(([, path = '', anchor = '']) => isBroken(page, path, anchor)).map(([link]) => link)
  expect(broken).toEqual([])
})
