// Writes the guides into the package, as Markdown in dist/docs. Links to what the package does not have become addresses of the repository.
import { existsSync, globSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { repository, root } from '../docs/.vitepress/links.ts'

/** Pages that only the site shows, or that are about this project's inside. */
const left = ['architecture', 'compare', 'index', 'playground']

const folder = 'dist/docs'
const guides = globSync('docs/*.md', { cwd: root }).filter((path) => !left.includes(path.slice(5, -3)))
const isInPackage = (path: string): boolean => /^(examples|skills)\//.test(path)

function linkInPackage(link: string): string {
  const [, path = '', anchor = ''] = /^([^#]*)(#.*)?$/.exec(link) ?? []
  const target = join('docs', path).replaceAll('\\', '/')
  if (guides.includes(target)) return link
  if (isInPackage(target)) return `${relative(folder, target).replaceAll('\\', '/')}${anchor}`
  if (!existsSync(join(root, target))) throw new Error(`${target} does not exist.`)
  if (target.endsWith('.png')) return `${repository.replace('github.com', 'raw.githubusercontent.com')}/main/${target}`
  return `${repository}/${statSync(join(root, target)).isDirectory() ? 'tree' : 'blob'}/main/${target}${anchor}`
}

mkdirSync(join(root, folder), { recursive: true })
for (const guide of guides) {
  const text = readFileSync(join(root, guide), 'utf8')
  const linked = text.replaceAll(/\]\((?![a-z]+:|#)([^)\s]+)\)/g, (_, link: string) => `](${linkInPackage(link)})`)
  writeFileSync(join(root, 'dist', guide), linked)
}
