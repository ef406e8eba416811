/** Tables of a page that a script makes: each stands between `<!-- from the code: name -->` and `<!-- end -->`. */
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { format, resolveConfig } from 'prettier'

export const root: string = fileURLToPath(new URL('..', import.meta.url))
export const read = (path: string): string => readFileSync(`${root}${path}`, 'utf8')

/** The pages with these tables, as prettier formats them. */
export async function filled(
  paths: readonly string[],
  tables: ReadonlyMap<string, string>,
): Promise<ReadonlyMap<string, string>> {
  const used = new Set<string>()
  const pages = paths.map(async (path) => {
    const page = read(path).replaceAll(
      /(<!-- from the code: (.+?) -->\n)[\s\S]*?(?=<!-- end -->)/g,
      (_, begin: string, name: string) => {
        used.add(name)
        return `${begin}\n${tables.get(name)}\n\n`
      },
    )
    return [path, await format(page, { ...(await resolveConfig(`${root}${path}`)), parser: 'markdown' })] as const
  })
  const all = new Map(await Promise.all(pages))
  const unused = [...tables.keys()].filter((name) => !used.has(name))
  if (unused.length > 0) throw new Error(`No page has the table: ${unused.join(', ')}.`)
  return all
}

export function writePages(pages: ReadonlyMap<string, string>): void {
  for (const [path, page] of pages) writeFileSync(`${root}${path}`, page)
}
