import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { packageRoot } from '../own-package.ts'

/** A project that can be copied. */
export interface Template {
  readonly name: string
  /** The first line of its README. */
  readonly title: string
  /** What stands in it: path to text. */
  readonly files: ReadonlyMap<string, string>
  /** The variables that its receiver reads, with what they are. */
  readonly variables: readonly Variable[]
}

export interface Variable {
  readonly name: string
  readonly meaning: string
}

const examples = join(packageRoot, 'examples')

/** The templates that came with the package, by name. */
export function templateNames(): readonly string[] {
  return readdirSync(examples).filter((name) => existsSync(join(examples, name, 'package.json')))
}

/** Reads a template whole: it is small, and nothing is written before all of it is known. */
export function readTemplate(name: string): Template {
  const folder = join(examples, name)
  const files = new Map<string, string>()
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    const path = relative(folder, join(entry.parentPath, entry.name))
    // What a run of the template has left there is not part of it; npm leaves .gitignore out of packages.
    if (!entry.isFile() || /(^|[/\\])(node_modules|\.next|\.wrangler|\.gitignore)([/\\]|$)/.test(path)) continue
    files.set(path, readFileSync(join(folder, path), 'utf8'))
  }
  files.set('.gitignore', ignored(files))
  const title = /^# (.+)$/m.exec(files.get('README.md') ?? '')?.[1] ?? name
  return { name, title, files, variables: variablesOf(files.get('.env.example') ?? '') }
}

function ignored(files: ReadonlyMap<string, string>): string {
  const lines = ['node_modules/', '.env']
  if (files.has('wrangler.jsonc')) lines.push('.dev.vars', '.wrangler/')
  if (files.has('tsconfig.json')) lines.push('.next/', 'next-env.d.ts')
  if ([...files.values()].some((text) => text.includes('node:sqlite'))) lines.push('*.db*')
  return `${lines.join('\n')}\n`
}

/** `# what it is` and `NAME=` lines; without a file there is the secret alone. */
function variablesOf(example: string): readonly Variable[] {
  const found = [...example.matchAll(/^# (.+)\n(\w+)=/gm)].map(([, meaning = '', name = '']) => ({ name, meaning }))
  return found.length > 0
    ? found
    : [{ name: 'WEBHOOK_SECRET', meaning: 'The value that is set as `auth` of the webhook.' }]
}
