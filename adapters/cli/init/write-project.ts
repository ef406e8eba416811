import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { environmentOf } from './environment.ts'
import type { Template } from './templates.ts'

/** A project that is to be. */
export interface Project {
  readonly template: Template
  readonly folder: string
  readonly name: string
  /** The version of this package, which the project depends on. */
  readonly version: string
  /** Values of the template's variables; a secret that is left out is made. */
  readonly variables: Readonly<Record<string, string>>
}

/** Why a folder cannot be used, or nothing. */
export function flawOfFolder(folder: string): string | undefined {
  if (!existsSync(folder)) return undefined
  try {
    return readdirSync(folder).length === 0
      ? undefined
      : `${folder} is not empty, and nothing is ever overwritten. Name another folder.`
  } catch {
    return `${folder} is a file. Name another folder.`
  }
}

/** Writes the project. Every file is new: one that is there already is an error, and after an error nothing is left. */
export function writeProject({ template, folder, name, version, variables }: Project): void {
  const { environmentFile } = template
  const files = new Map(template.files)
  files.set('package.json', manifest(files.get('package.json') ?? '{}', name, version))
  files.set(environmentFile, environmentOf(template, variables))
  // Whoever followed this step would overwrite the secret that was just written.
  files.set('README.md', (files.get('README.md') ?? '').replace(/^cp \S+\.example .*\n/m, ''))
  const made: string[] = []
  try {
    for (const [path, text] of files) {
      const file = join(folder, path)
      const outermost = mkdirSync(dirname(file), { recursive: true })
      if (outermost !== undefined) made.push(outermost)
      // The secret is for the one who runs the receiver.
      writeFileSync(file, text, { flag: 'wx', mode: path === environmentFile ? 0o600 : 0o644 })
      made.push(file)
    }
  } catch (error) {
    for (const path of made.toReversed()) rmSync(path, { recursive: true, force: true })
    throw error
  }
}

function manifest(text: string, name: string, version: string): string {
  const given: { dependencies?: Record<string, string> } = JSON.parse(text)
  return `${JSON.stringify({ ...given, name, dependencies: { ...given.dependencies, fleethook: `^${version}` } }, null, 2)}\n`
}

/** What to type next: how to install, and how to run. */
export function nextCommands({ files }: Template): readonly [string, string] {
  if (files.has('deno.json')) return ['deno install', 'deno task start']
  const { scripts = {} }: { scripts?: Record<string, string> } = JSON.parse(files.get('package.json') ?? '{}')
  if (scripts['start']?.startsWith('bun ')) return ['bun install', 'bun start']
  const run = 'dev' in scripts ? 'npm run dev' : 'start' in scripts ? 'npm start' : 'npm test'
  return ['npm install', run]
}
