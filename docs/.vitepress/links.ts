// Where a link of a page leads on the site. The pages link to each other as files, so that they can be read on GitHub too.
import { existsSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'

export const root: string = fileURLToPath(new URL('../..', import.meta.url))

const manifest: { readonly repository: { readonly url: string } } = JSON.parse(
  readFileSync(join(root, 'package.json'), 'utf8'),
)

/** The address of the repository, with the owner of `package.json`. */
export const repository: string = manifest.repository.url.replace(/^git\+/, '').replace(/\.git$/, '')

const [owner = '', name = ''] = repository.split('/').slice(-2)

/** The address of the site, by which pages link to what is only there: the reference and the playground. */
export const site: string = `https://${owner}.github.io/${name}/`

/** The page of the site that a file of the repository becomes, or `undefined`. */
export function pageOf(file: string): string | undefined {
  if (!file.endsWith('.md')) return undefined
  const [, docs] = /^docs\/(.+)$/.exec(file) ?? []
  if (docs !== undefined) return docs
  if (file === 'bench/README.md') return 'benchmarks/index.md'
  const [, bench] = /^bench\/RESULTS-?(\w*)\.md$/.exec(file) ?? []
  if (bench !== undefined) return `benchmarks/${bench === '' ? 'messages' : bench}.md`
  const [, project] = /^(CHANGELOG|CONTEXT|CONTRIBUTING|SECURITY)\.md$/.exec(file) ?? []
  return project === undefined ? undefined : `project/${project.toLowerCase()}.md`
}

/** A link in the file `from`, both from the root of the repository, as it has to be on the site. */
export function linkOnSite(from: string, link: string): string {
  if (link.startsWith(site)) return `/${link.slice(site.length)}`
  const [, own] = new RegExp(`^${repository}/(?:blob|tree)/main/(.*)$`).exec(link) ?? []
  if (own === undefined && /^([a-z]+:|#|\/)/i.test(link)) return link
  const [path = '', anchor] = (own ?? join(dirname(from), link)).split('#')
  const hash = anchor === undefined ? '' : `#${anchor}`
  const page = pageOf(path)
  if (page !== undefined) return `/${page}${hash}`
  const isFolder = existsSync(join(root, path)) && statSync(join(root, path)).isDirectory()
  return `${repository}/${isFolder ? 'tree' : 'blob'}/main/${path.replace(/\/$/, '')}${hash}`
}

/** An image in the file `from`. Images of README.md are shown on the first page of docs/. */
export function imageOnSite(from: string, source: string): string {
  return from === 'README.md' ? relative('docs', source) : source
}

/** The anchor of a heading, as GitHub makes it. */
export function anchorOf(heading: string): string {
  return heading
    .trim()
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
    .replaceAll(/\s/g, '-')
}
