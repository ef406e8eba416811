import type { Template } from './templates.ts'

/** What to say where the template's `engines` ask for a newer Node than this one, which would not read its TypeScript. */
export function nodeNeeded({ files }: Template, version: string): string | undefined {
  const manifest: { engines?: { node?: string } } = JSON.parse(files.get('package.json') ?? '{}')
  const needed = /^>=(\d+\.\d+)$/.exec(manifest.engines?.node ?? '')?.[1]
  if (needed === undefined || !isOlder(version, needed)) return undefined
  return `It needs Node ${needed} or newer, and this is ${version}: install a newer one before the next step.`
}

function isOlder(version: string, needed: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number)
  const [neededMajor = 0, neededMinor = 0] = needed.split('.').map(Number)
  return major < neededMajor || (major === neededMajor && minor < neededMinor)
}
