import { readFileSync } from 'node:fs'
import { dirname } from 'node:path'
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

export const isOlder = (version: string, than: string): boolean =>
  version.localeCompare(than, 'en', { numeric: true }) < 0
