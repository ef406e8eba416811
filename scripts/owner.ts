// `node scripts/owner.ts <owner>`: writes the owner of the repository into package.json. The page of a registry resolves the
// relative links of the README against it.
import { readFileSync, writeFileSync } from 'node:fs'

/** The text of a package.json with another owner in `repository`, `bugs` and `homepage`. Throws for an impossible name. */
export function withOwner(manifest: string, owner: string): string {
  if (!/^[a-z\d](-?[a-z\d]){0,38}$/i.test(owner))
    throw new Error(`"${owner}" cannot be an owner: use letters, digits and single hyphens.`)
  return manifest.replaceAll(/(github\.com\/)[^/"]+(\/fleethook\b)/g, `$1${owner}$2`)
}

if (import.meta.main) {
  const [owner = ''] = process.argv.slice(2)
  const file = new URL('../package.json', import.meta.url)
  try {
    writeFileSync(file, withOwner(readFileSync(file, 'utf8'), owner))
  } catch (error) {
    console.error(`error: ${error instanceof Error ? error.message : String(error)}`)
    process.exitCode = 2
  }
}
