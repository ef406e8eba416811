import { existsSync, readFileSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

/** Found by the package's own name, because the compiled file lies elsewhere. */
const manifestPath = fileURLToPath(import.meta.resolve('fleethook/package.json'))

export const packageRoot: string = dirname(manifestPath)

export function packageVersion(): string {
  const manifest: unknown = JSON.parse(readFileSync(manifestPath, 'utf8'))
  return typeof manifest === 'object' && manifest !== null && 'version' in manifest
    ? String(manifest.version)
    : 'unknown'
}

/** The tarball or the checkout that this package is from. `undefined`: a registry, or nobody noted it. */
export function localOrigin(): string | undefined {
  const modules = dirname(packageRoot)
  if (basename(modules) !== 'node_modules') return packageRoot
  const note = join(modules, '.package-lock.json')
  if (!existsSync(note)) return undefined
  const { packages }: { packages?: Record<string, { resolved?: string }> } = JSON.parse(readFileSync(note, 'utf8'))
  const resolved = packages?.['node_modules/fleethook']?.resolved
  return resolved?.startsWith('file:') ? resolve(modules, '..', resolved.slice('file:'.length)) : undefined
}

export const isOlder = (version: string, than: string): boolean =>
  version.localeCompare(than, 'en', { numeric: true }) < 0
