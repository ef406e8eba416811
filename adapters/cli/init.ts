import { randomBytes } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { basename, dirname, join, relative, resolve } from 'node:path'
import type { Command } from 'commander'
import { nearestName } from '../../src/events/fields.ts'
import { localOrigin, packageRoot, packageVersion } from './own-package.ts'
import { inShell } from './terminal.ts'

export function defineInit(command: Command): void {
  command
    .description(
      'Copies a template into a new folder, writes a strong secret into its .env, and prints what to type next. ' +
        'Never overwrites a file.',
    )
    .argument('<template>', `one of ${templateNames().join(', ')}`)
    .argument('[dir]', 'a folder that is new or empty (default: the name of the template)')
    .addHelpText('after', '\nExample:\n  fleethook init node my-receiver\n')
    .action((template: string, dir: string | undefined) => init(command, template, dir ?? template))
}

function init(command: Command, template: string, dir: string): void {
  /** Prints one line and ends with status 2. */
  const bad = (message: string): never => command.error(`error: ${message}`, { exitCode: 2 })
  const names = templateNames()
  if (!names.includes(template)) {
    const meant = nearestName(template, names)
    bad(
      `There is no template "${template}". There are ${names.join(', ')}.${meant === undefined ? '' : ` Did you mean ${meant}?`}`,
    )
  }
  const folder = resolve(dir)
  const problem = problemWithFolder(folder)
  if (problem !== undefined) bad(problem)
  const chosen = readTemplate(template)
  try {
    const name = projectName(basename(folder), `fleethook-${template}`)
    writeProject({ template: chosen, folder, name, version: packageVersion() })
  } catch (error) {
    bad(`Nothing was written: ${error instanceof Error ? error.message : String(error)}`)
  }

  const where = relative(process.cwd(), folder) || '.'
  console.log(done(chosen, where))
  const origin = localOrigin()
  if (origin !== undefined)
    console.log(`\nThis fleethook is from ${origin}. A registry may not have it, so install it from there:`)
  const cd = where === '.' ? '' : `cd ${inShell(where)} && `
  console.log(`\n  ${cd}${nextCommands(chosen, packageVersion(), origin).join('\n  ')}\n`)
  console.log(`For a coding agent, AGENTS.md names the skill: ${skill}\n`)
}

function done({ title, environmentFile, variables }: Template, where: string): string {
  const empty = variables.filter(({ random, otherwise }) => !random && !otherwise).map(({ name }) => name)
  const left = empty.length > 0 ? ` Add ${empty.join(', ')} there.` : ''
  const secret = variables.some(({ random }) => random)
    ? ` Its secret is in ${environmentFile}. Set it as the \`auth\` of the webhook.`
    : ` Its settings are in ${environmentFile}.`
  return `${title}: written to ${where}.${secret}${left}`
}

/** A project that `fleethook init` can copy. */
interface Template {
  readonly name: string
  /** The first line of its README. */
  readonly title: string
  /** Path to text. */
  readonly files: ReadonlyMap<string, string>
  readonly environmentFile: '.env' | '.dev.vars'
  readonly variables: readonly Variable[]
}

interface Variable {
  readonly name: string
  readonly meaning: string
  /** A secret, by its name: `init` makes a random value. */
  readonly random: boolean
  /** The value of another variable, or `''`. */
  readonly otherwise: string
}

const examples = join(packageRoot, 'examples')

/** What a coding agent reads, in a project that has installed this package. */
export const skill = 'node_modules/fleethook/docs/skills/fleethook/SKILL.md'

/** Agents look for this file. The rules are in the skill, which each release brings up to date. */
const forAgents = `This receiver is written with fleethook. Before you change it, read ${skill}: most mistakes here run, and are wrong in silence.
Guides are in node_modules/fleethook/dist/docs, and complete programs with their tests in node_modules/fleethook/examples.
When you are done, run the tests, and \`npx fleethook send --format all\` against the receiver.
`

export function templateNames(): readonly string[] {
  return readdirSync(examples)
    .filter((name) => existsSync(join(examples, name, 'package.json')))
    .sort()
}

/** Reads a whole template, so that nothing is written before every file is read. */
export function readTemplate(name: string): Template {
  const folder = join(examples, name)
  const files = new Map<string, string>()
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    const path = relative(folder, join(entry.parentPath, entry.name))
    // Skip files that a run of the template left there. npm leaves .gitignore out of packages.
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
  files.set('AGENTS.md', forAgents)
  const title = /^# (.+)$/m.exec(files.get('README.md') ?? '')?.[1] ?? name
  return { name, title, files, environmentFile, variables: variablesOf(files.get(`${environmentFile}.example`) ?? '') }
}

/** The .gitignore of a template, derived from its files. */
function ignored(files: ReadonlyMap<string, string>, environmentFile: string): string {
  const lines = ['node_modules/', environmentFile]
  const manifest = files.get('package.json') ?? ''
  if (manifest.includes('"wrangler"')) lines.push('.wrangler/')
  if (manifest.includes('"esbuild"')) lines.push('dist/')
  if (manifest.includes('"next"')) lines.push('.next/', 'next-env.d.ts')
  if (files.get('server.ts')?.includes('node:sqlite')) lines.push('*.db*')
  if ([...files.values()].some((text) => /'data\/[\w-]+\.db'/.test(text))) lines.push('data/')
  return `${lines.join('\n')}\n`
}

/** Reads pairs of lines: `# meaning` and `NAME=`, or `NAME=value`. */
function variablesOf(example: string): readonly Variable[] {
  return [...example.matchAll(/^# (.+)\n(\w+)=(.*)/gm)].map(([, meaning = '', name = '', otherwise = '']) => ({
    name,
    meaning,
    random: /_(SECRET|TOKEN)$/.test(name),
    otherwise,
  }))
}

/** The name of a project in a folder: the folder's, without characters that a package name cannot have. */
function projectName(folderName: string, otherwise: string): string {
  const name = folderName
    .toLowerCase()
    .replaceAll(/[^a-z0-9._-]+/g, '-')
    .replaceAll(/^[._-]+|[._-]+$/g, '')
  return name === '' ? otherwise : name
}

/** The text of the file that the template's runtime reads its variables from, with new secrets. */
function environmentOf({ variables }: Template): string {
  return variables
    .map(
      ({ name, meaning, random, otherwise }) =>
        `# ${meaning}\n${name}=${random ? randomBytes(32).toString('hex') : otherwise}\n`,
    )
    .join('')
}

interface Project {
  readonly template: Template
  readonly folder: string
  readonly name: string
  /** The version of this package, which the project depends on. */
  readonly version: string
}

/** Why a project cannot be written to this folder, or `undefined`. */
function problemWithFolder(folder: string): string | undefined {
  if (!existsSync(folder)) return undefined
  try {
    return readdirSync(folder).length === 0
      ? undefined
      : `${folder} is not empty, and init never overwrites a file. Name another folder.`
  } catch {
    return `${folder} is a file. Name another folder.`
  }
}

/** Writes the project. A file that already exists is an error. After an error, no new file is left. */
export function writeProject({ template, folder, name, version }: Project): void {
  const { environmentFile } = template
  const files = new Map(template.files)
  files.set('package.json', manifest(files.get('package.json') ?? '{}', name, version))
  files.set(environmentFile, environmentOf(template))
  const made: string[] = []
  try {
    for (const [path, text] of files) {
      const file = join(folder, path)
      const outermost = mkdirSync(dirname(file), { recursive: true })
      if (outermost !== undefined) made.push(outermost)
      // Only the user who runs the receiver may read the secret.
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

/** The next commands, from its README. `origin`: the tarball or checkout of this package, if no registry has it. */
export function nextCommands({ files }: Template, version: string, origin?: string): readonly string[] {
  // Up to the first message. Nobody posts to one without a webhook.
  const [, all = ''] = /^```sh\n([^]+?)\n```/m.exec(files.get('README.md') ?? '') ?? []
  const commands = (/^[^]+?fleethook send.*/.exec(all)?.[0] ?? all.split('\n').slice(0, 2).join('\n')).split('\n')
  if (origin === undefined) return commands
  const install = origin.endsWith('.tgz')
    ? [`npm install ${inShell(origin)}`]
    : [`npm pack ${inShell(origin)}`, `npm install ./fleethook-${version}.tgz`]
  return [...install, ...commands.slice(1)]
}
