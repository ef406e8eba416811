// `node scripts/readme.ts absolute`: makes the links of README.md absolute, because a registry shows the page alone. `relative`: makes
// them links into the repository again. `npm pack` runs the first before, and the second behind it.
import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { repository, root } from '../docs/.vitepress/links.ts'

const pictures = `${repository.replace('github.com', 'raw.githubusercontent.com')}/main/`

/** A page of the root with absolute links. Throws for a link to a file that does not exist. */
export function absolute(text: string): string {
  return text.replaceAll(
    /(!?)(\[[^\]]*\]\()(?![a-z]+:|#)([^)#\s]+)/g,
    (_, picture: string, label: string, path: string) => {
      const kind = statSync(join(root, path)).isDirectory() ? 'tree' : 'blob'
      return picture === '' ? `${label}${repository}/${kind}/main/${path}` : `!${label}${pictures}${path}`
    },
  )
}

/** The opposite of {@link absolute}. */
export function relative(text: string): string {
  return ['blob', 'tree'].reduce(
    (page, kind) => page.replaceAll(`](${repository}/${kind}/main/`, ']('),
    text.replaceAll(`](${pictures}`, ']('),
  )
}

if (import.meta.main) {
  const file = join(root, 'README.md')
  const text = readFileSync(file, 'utf8')
  writeFileSync(file, process.argv[2] === 'absolute' ? absolute(text) : relative(text))
}
