import { randomBytes } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
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

/** Writes the project. Every file is new: one that is there already is an error. */
export function writeProject({ template, folder, name, version, variables }: Project): void {
  const files = new Map(template.files)
  files.set('package.json', manifest(files.get('package.json') ?? '{}', name, version))
  files.set(files.has('wrangler.jsonc') ? '.dev.vars' : '.env', environment(template, variables))
  for (const [path, text] of files) {
    const file = join(folder, path)
    mkdirSync(dirname(file), { recursive: true })
    // The secret is for the one who runs the receiver.
    writeFileSync(file, text, { flag: 'wx', mode: path === '.env' || path === '.dev.vars' ? 0o600 : 0o644 })
  }
}

function manifest(text: string, name: string, version: string): string {
  const given: { dependencies?: Record<string, string> } = JSON.parse(text)
  return `${JSON.stringify({ ...given, name, dependencies: { ...given.dependencies, fleethook: `^${version}` } }, null, 2)}\n`
}

function environment({ variables }: Template, values: Readonly<Record<string, string>>): string {
  return variables
    .map(({ name, meaning }) => {
      const value = values[name] ?? (name === 'WEBHOOK_SECRET' ? randomBytes(32).toString('hex') : '')
      return `# ${meaning}\n${name}=${value}\n`
    })
    .join('')
}

/** What to type next: how to install, and how to run. */
export function nextCommands({ files }: Template): readonly [string, string] {
  if (files.has('deno.json')) return ['deno install', 'deno task start']
  const { scripts = {} }: { scripts?: Record<string, string> } = JSON.parse(files.get('package.json') ?? '{}')
  if (scripts['start']?.startsWith('bun ')) return ['bun install', 'bun start']
  const run = 'dev' in scripts ? 'npm run dev' : 'start' in scripts ? 'npm start' : 'npm test'
  return ['npm install', run]
}
