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
  /** The file that its runtime reads variables from. */
  readonly environmentFile: '.env' | '.dev.vars'
  /** The variables that its receiver reads, with what they are. */
  readonly variables: readonly Variable[]
}

export interface Variable {
  readonly name: string
  readonly meaning: string
  /** Made at random when it is not given. */
  readonly random: boolean
}

const examples = join(packageRoot, 'examples')

/** The templates that came with the package, by name. */
export function templateNames(): readonly string[] {
  return readdirSync(examples)
    .filter((name) => existsSync(join(examples, name, 'package.json')))
    .sort()
}

/** Reads a template whole: it is small, and nothing is written before all of it is known. */
export function readTemplate(name: string): Template {
  const folder = join(examples, name)
  const files = new Map<string, string>()
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    const path = relative(folder, join(entry.parentPath, entry.name))
    // What a run of the template has left there is not part of it; npm leaves .gitignore out of packages.
    if (
      !entry.isFile() ||
      /(^|[/\\])(node_modules|data|dist|\.next|\.wrangler|\.env|\.dev\.vars|\.gitignore|[^/\\]*\.db(-\w+)?)([/\\]|$)/.test(
        path,
      )
    )
      continue
    files.set(path, readFileSync(join(folder, path), 'utf8'))
  }
  const environmentFile = files.has('.dev.vars.example') ? '.dev.vars' : '.env'
  files.set('.gitignore', ignored(files, environmentFile))
  const title = /^# (.+)$/m.exec(files.get('README.md') ?? '')?.[1] ?? name
  return { name, title, files, environmentFile, variables: variablesOf(files.get(`${environmentFile}.example`) ?? '') }
}

/** What the template's own .gitignore says, told by what is in the template. */
function ignored(files: ReadonlyMap<string, string>, environmentFile: string): string {
  const lines = ['node_modules/', environmentFile]
  const manifest = files.get('package.json') ?? ''
  if (manifest.includes('"wrangler"')) lines.push('.wrangler/')
  if (manifest.includes('"esbuild"')) lines.push('dist/')
  if (manifest.includes('"next"')) lines.push('.next/', 'next-env.d.ts')
  if (files.get('server.ts')?.includes('node:sqlite')) lines.push('*.db*')
  if (files.get('server.ts')?.includes("'data/inbox.db'")) lines.push('data/')
  return `${lines.join('\n')}\n`
}

/** `# what it is` and `NAME=` lines. */
function variablesOf(example: string): readonly Variable[] {
  return [...example.matchAll(/^# (.+)\n(\w+)=/gm)].map(([, meaning = '', name = '']) => ({
    name,
    meaning,
    random: /_(SECRET|TOKEN)$/.test(name),
  }))
}
