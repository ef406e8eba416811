// `node scripts/owner.ts <owner>`: writes the owner of the repository wherever it is named.
import { globSync, readFileSync, writeFileSync } from 'node:fs'

/** The files that name the owner: a registry makes links of addresses, and installed pages lead to the docs. */
export const filesWithOwner: readonly string[] = [
  'package.json',
  'README.md',
  '.github/CODEOWNERS',
  ...globSync('docs/*.md'),
  ...globSync('examples/*/README.md'),
]

/** A text with another owner in the addresses of the repository, and of all its code. Throws for an impossible name. */
export function withOwner(text: string, owner: string): string {
  if (!/^[a-z\d](-?[a-z\d]){0,38}$/i.test(owner))
    throw new Error(`"${owner}" cannot be an owner: use letters, digits and single hyphens.`)
  return text
    .replaceAll(/((?:github|raw\.githubusercontent)\.com\/)[^/"]+(\/fleethook\b)/g, `$1${owner}$2`)
    .replaceAll(/[\w-]+(\.github\.io\/fleethook\b)/g, `${owner}$1`)
    .replaceAll(/^\* @\S+$/gm, `* @${owner}`)
}

if (import.meta.main) {
  const [owner = ''] = process.argv.slice(2)
  try {
    for (const file of filesWithOwner) writeFileSync(file, withOwner(readFileSync(file, 'utf8'), owner))
  } catch (error) {
    console.error(`error: ${error instanceof Error ? error.message : String(error)}`)
    process.exitCode = 2
  }
}
