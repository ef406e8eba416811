// The site: the pages of docs/, the benchmarks and the files of the project, built in place. `DOCS_BASE` sets the path that it is
// served under, such as `/fleethook/`.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import type { DefaultTheme, MarkdownOptions, SiteConfig, UserConfig } from 'vitepress'
import { anchorOf, imageOnSite, linkOnSite, pageOf, repository, root } from './links.ts'
import { entries, reference } from './reference.ts'
import { type Section, sectionsOf } from './sections.ts'

const base = process.env['DOCS_BASE'] ?? '/'
if (!/^\/([^?#]+\/)?$/.test(base)) throw new Error(`DOCS_BASE is "${base}": begin and end it with a slash.`)

const summary = 'A webhook receiver in TypeScript for the telemetry of shared vehicles, on Node, Bun, Deno and Workers.'

type Group = DefaultTheme.SidebarItem & { readonly text: string; readonly items: DefaultTheme.SidebarItem[] }

const sidebar: Group[] = [
  {
    text: 'Start',
    items: [
      { text: 'What it is', link: '/' },
      { text: 'Pick a template and an inbox', link: '/start' },
      { text: 'Compare', link: '/compare' },
      { text: 'Playground', link: '/playground' },
      { text: 'Mounting', link: '/mounting' },
      { text: 'Runtimes', link: '/runtimes' },
      { text: 'A skill for coding agents', link: '/skills/fleethook/SKILL' },
    ],
  },
  {
    text: 'Guides',
    items: [
      { text: 'Handlers', link: '/handlers' },
      { text: 'Branches', link: '/branches' },
      { text: 'Vehicles and rules', link: '/vehicles' },
      { text: 'Facts: limits, areas and bookings', link: '/facts' },
      { text: 'Episodes: trips and charges', link: '/episodes' },
      { text: 'Testing', link: '/testing' },
      { text: 'The sandbox', link: '/sandbox' },
      { text: 'Into your database exactly once', link: '/exactly-once' },
      { text: 'The SQLite inbox', link: '/inbox' },
      { text: 'Several machines', link: '/several-machines' },
      { text: 'Workers that lose nothing', link: '/workers' },
      { text: 'Deploying', link: '/deploying' },
      { text: 'Operating', link: '/operating' },
      { text: 'Seeing what happens', link: '/observing' },
      { text: 'The inspector', link: '/inspector' },
      { text: 'Troubleshooting', link: '/troubleshooting' },
      { text: 'The client', link: '/client' },
    ],
  },
  {
    text: 'Reference',
    items: [
      { text: 'Events and values', link: '/events' },
      { text: 'Messages to paste', link: '/messages' },
      { text: 'HTTP answers', link: '/http' },
      { text: 'Reliability', link: '/reliability' },
      { text: 'Versions and upgrades', link: '/versions' },
      {
        text: 'API',
        items: entries().map(({ name, page }) => ({ text: name, link: `/api/${page}` })),
      },
    ],
  },
  {
    text: 'Why',
    items: [
      { text: 'Proof', link: '/proof' },
      { text: 'Benchmarks', link: '/benchmarks/' },
      { text: 'Architecture', link: '/architecture' },
      { text: 'The words we use', link: '/project/context' },
      { text: 'Security', link: '/project/security' },
      { text: 'Changelog', link: '/project/changelog' },
      { text: 'Contributing', link: '/project/contributing' },
    ],
  },
]

/** The file whose links a page has while it is rendered, from the root of the repository. The first page shows parts of README.md. */
function fileOf({ realPath, path }: { readonly realPath?: string; readonly path: string }): string {
  const file = relative(root, realPath ?? path).replaceAll('\\', '/')
  return file === 'docs/index.md' ? 'README.md' : file
}

const markdown: MarkdownOptions = {
  theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' },
  anchor: { slugify: anchorOf },
  toc: { slugify: anchorOf },
  config(md) {
    md.core.ruler.push('site-links', ({ tokens, env }) => {
      for (const token of tokens.flatMap(({ children }) => children ?? [])) {
        const href = token.attrGet('href')
        if (token.type === 'link_open' && href !== null) token.attrSet('href', linkOnSite(fileOf(env), href))
        const source = token.attrGet('src')
        if (token.type === 'image' && source !== null) token.attrSet('src', imageOnSite(fileOf(env), source))
      }
    })
  },
}

/** The sections of a page for the search. No file holds the text of a reference page, so its members are sections of it. */
async function sections(file: string, html: string): Promise<Section[]> {
  const found = sectionsOf(html)
  // Tables of figures would be found by every number, so these pages are found by their titles.
  if (file.includes('/docs/figures/'))
    return found.slice(0, 1).map(({ anchor, titles }) => ({ anchor, titles, text: '' }))
  const entry = entries().find(({ page }) => file.endsWith(`/docs/api/${page}.md`))
  if (entry === undefined) return found
  const { name, members } = await reference(entry)
  return [
    { anchor: '', titles: [name], text: '' },
    ...members.map((member) => ({ anchor: member.name, titles: [name, member.name], text: member.doc })),
  ]
}

/**
 * The words that the search does not look for, because long sections have many of them. The function goes into the site as text, so
 * it uses nothing around it.
 */
function processTerm(term: string): string | null {
  const word = term.toLowerCase()
  const small =
    /^(a|an|and|are|as|at|be|by|can|do|does|for|from|has|have|how|i|if|in|is|it|its|must|my|of|on|or|so|that|the|this|to|what|when|where|which|who|why|with|you|your)$/
  return small.test(word) ? null : word
}

/**
 * The words of a text, and as a whole the names that somebody looks up: codes of errors, answers and metrics, checks of `doctor`, alerts.
 * These begin with a `_`, so that a word alone, or the beginning of one, does not find them. Goes into the site as text, too.
 */
function tokenize(text: string): string[] {
  const names =
    text.match(
      /[a-z]+(?:_[a-z]+)+|\b(?:secret|webhook|proxy|inbox|postgres|receiver|vehicles)\.[a-z]+\b|\b(?:backlog|certificateends|deadletters|diskslow|draining|drift|failing|handlerpaused|handlerslow|lost|nothingarrives|nothinghandles|receivergone|refusing|serveraway)\b/gi,
    ) ?? []
  return [...text.split(/[\s\p{Z}\p{P}]+/u), ...names.map((name) => `_${name}`)]
}

/** Who looks for such a name wants to know what to do: these sections say it. Few look for why it was decided. Goes into the site as text. */
function boostDocument(id: string, term: string): number {
  if (/^[45]\d\d$/.test(term)) return /\/http\.html#what-each-error-means/.test(id) ? 20 : 1
  if (!term.startsWith('_'))
    return id.endsWith('/troubleshooting.html#the-log-says') ? 2 : /\/decisions\//.test(id) ? 0.7 : 1
  if (term.includes('.')) return id.endsWith('/troubleshooting.html#each-check-of-doctor') ? 20 : 1
  if (!/^_draining$|_.*_/.test(term)) return id.endsWith('/operating.html#what-to-watch') ? 20 : 1
  if (/\/http\.html#what-each-error-means|\/troubleshooting\.html#errors-by-code$/.test(id)) return 20
  return /\/(troubleshooting|http|operating)\.html/.test(id) ? 5 : 1
}

/** Writes the source of every page beside it, and `llms.txt`, which lists them. */
function writeTexts({ outDir, pages, rewrites, srcDir, dynamicRoutes }: SiteConfig): void {
  const contents = new Map(dynamicRoutes.routes.map(({ path, content }) => [path, content]))
  for (const file of pages) {
    const to = rewrites.map[file] ?? file
    const source = file === 'docs/index.md' ? 'README.md' : file
    const text = contents.get(file) ?? readFileSync(join(srcDir, source), 'utf8')
    mkdirSync(dirname(join(outDir, to)), { recursive: true })
    writeFileSync(join(outDir, to), text)
  }
  const lines = (items: readonly DefaultTheme.SidebarItem[]): readonly string[] =>
    items.flatMap(({ text, link, items: below }) => {
      const page = link === undefined ? undefined : `${link.slice(1)}${link.endsWith('/') ? 'index' : ''}.md`
      return [...(page === undefined ? [] : [`- [${text}](${base}${page})`]), ...lines(below ?? [])]
    })
  const groups = sidebar.map(({ text, items }) => `## ${text}\n\n${lines(items).join('\n')}\n`)
  writeFileSync(join(outDir, 'llms.txt'), `# fleethook\n\n> ${summary}\n\n${groups.join('\n')}`)
}

const config: UserConfig<DefaultTheme.Config> = {
  title: 'fleethook',
  description: summary,
  lang: 'en-US',
  base,
  srcDir: root,
  srcExclude: ['.*/**', '{src,adapters,test,examples,scripts}/**', 'README.md', 'AGENTS.md'],
  outDir: join(root, 'docs/.vitepress/dist'),
  cacheDir: join(root, 'node_modules/.vite/docs'),
  rewrites: (file) => pageOf(file) ?? file,
  head: [['link', { rel: 'icon', href: `${base}icon.svg`, type: 'image/svg+xml' }]],
  markdown,
  vite: {
    publicDir: join(root, 'docs/.vitepress/public'),
    resolve: { alias: { '#timing-safe-equal': 'timing-safe-equal/browser.js' } },
    build: { chunkSizeWarningLimit: 2_000 },
  },
  buildEnd: writeTexts,
  themeConfig: {
    nav: [
      { text: 'Start', link: '/start' },
      { text: 'Compare', link: '/compare' },
      { text: 'Guides', link: '/handlers' },
      { text: 'API', link: '/api/fleethook' },
      { text: 'Playground', link: '/playground' },
    ],
    sidebar,
    outline: [2, 3],
    search: {
      provider: 'local',
      options: {
        miniSearch: {
          options: { processTerm, tokenize },
          searchOptions: { boostDocument },
          _splitIntoSections: sections,
        },
      },
    },
    editLink: { pattern: `${repository}/edit/main/:path`, text: 'Edit this page' },
    socialLinks: [{ icon: 'github', link: repository }],
    notFound: {
      title: 'This page does not exist',
      quote: 'It may have moved. Search for it, or begin at the start.',
      linkText: 'To the start',
      linkLabel: 'To the start',
    },
    footer: { message: 'MIT licensed.' },
  },
}

export default config
