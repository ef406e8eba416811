import { basename, relative, resolve } from 'node:path'
import { cancel, intro, outro, password, select, text } from '@clack/prompts'
import { type Command, InvalidArgumentError } from 'commander'
import { packageVersion } from './own-package.ts'
import {
  nextCommands,
  nodeNeeded,
  problemWithFolder,
  problemWithName,
  problemWithVariables,
  projectName,
  readTemplate,
  type Template,
  templateNames,
  writeProject,
} from './project.ts'
import { colorsFor } from './terminal.ts'

interface Given {
  readonly yes?: true
  readonly name?: string
  readonly secret?: string
  readonly set?: Readonly<Record<string, string>>
}

export function defineInit(command: Command): void {
  command
    .description(
      'Copies a template into a new folder, writes a strong secret into its .env, and prints what to type next. ' +
        'Never overwrites a file. On a terminal, it asks for a missing template or folder.',
    )
    .argument('[template]', `one of ${templateNames().join(', ')}`)
    .argument('[dir]', 'a folder that is new or empty')
    .option('-y, --yes', 'ask nothing and use the defaults')
    .option('-n, --name <name>', 'the name of the project (default: the name of the folder)')
    .option('-s, --secret <secret>', 'the `auth` of the webhook (default: 32 random bytes)')
    .option('--set <NAME=value>', 'another variable of the template; can be given several times', variable)
    .addHelpText(
      'after',
      '\nExamples:\n  fleethook init node my-receiver\n  fleethook init charging-alerts alerts --set CHAT_WEBHOOK_URL=https://chat.example.com/hook\n',
    )
    .action((template: string | undefined, dir: string | undefined, given: Given) =>
      init(command, template, dir, given),
    )
}

async function init(
  command: Command,
  template: string | undefined,
  dir: string | undefined,
  given: Given,
): Promise<void> {
  const isComplete = given.yes === true || (template !== undefined && dir !== undefined)
  const ask = process.stdin.isTTY && process.stdout.isTTY && !isComplete
  if (ask) intro('fleethook init')

  const names = templateNames()
  const name = template ?? (ask ? await askTemplate(names) : given.yes ? 'node' : undefined)
  if (name === undefined) return bad(command, `Name a template: ${names.join(', ')}.`)
  if (!names.includes(name)) return bad(command, `There is no template "${name}". ${suggestion(name, names)}`)
  const chosen = readTemplate(name)

  const flagged: Readonly<Record<string, string>> = {
    ...(given.secret === undefined ? {} : { WEBHOOK_SECRET: given.secret }),
    ...given.set,
  }
  const problem =
    (given.name === undefined ? undefined : problemWithName(given.name)) ??
    (dir === undefined ? undefined : problemWithFolder(resolve(dir))) ??
    problemWithVariables(chosen, flagged)
  if (problem !== undefined) return bad(command, problem)

  const folder = resolve(dir ?? (ask ? await askFolder(name) : name))
  const problemWithDefault = problemWithFolder(folder)
  if (problemWithDefault !== undefined) return bad(command, problemWithDefault)
  const variables = ask ? { ...flagged, ...(await askVariables(chosen, flagged)) } : flagged
  try {
    writeProject({
      template: chosen,
      folder,
      name: given.name ?? projectName(basename(folder), `fleethook-${name}`),
      version: packageVersion(),
      variables,
    })
  } catch (error) {
    return bad(command, `Nothing was written: ${error instanceof Error ? error.message : String(error)}`)
  }

  const [install, run] = nextCommands(chosen)
  const where = relative(process.cwd(), folder) || '.'
  const report = done(chosen, where, variables)
  if (ask) outro(report)
  else console.log(report)
  const needed = nodeNeeded(chosen, process.versions.node)
  if (needed !== undefined) console.log(`\n${colorsFor(process.stdout).yellow(needed)}`)
  console.log(
    `\n  ${where === '.' ? '' : `cd ${/^[\w./-]+$/.test(where) ? where : JSON.stringify(where)} && `}${install}\n  ${run}\n`,
  )
}

function done(
  { title, environmentFile, variables }: Template,
  where: string,
  given: Readonly<Record<string, string>>,
): string {
  const empty = variables.filter(({ name, random }) => !random && !given[name]).map(({ name }) => name)
  const left = empty.length > 0 ? ` Add ${empty.join(', ')} there.` : ''
  return `${title}: written to ${where}. Its secret is in ${environmentFile}. Set it as the \`auth\` of the webhook.${left}`
}

/** Prints one line and ends with status 2. */
function bad(command: Command, message: string): never {
  return command.error(`error: ${message}`, { exitCode: 2 })
}

function suggestion(name: string, names: readonly string[]): string {
  const given = name.toLowerCase()
  const near = names.find((known) => known.startsWith(given.slice(0, 3)) || known.includes(given))
  return near === undefined ? `There are ${names.join(', ')}.` : `Did you mean ${near}? There are ${names.join(', ')}.`
}

async function askTemplate(names: readonly string[]): Promise<string> {
  const widest = Math.max(...names.map((name) => name.length))
  const options = names.map((value) => ({ value, label: `${value.padEnd(widest)}  ${readTemplate(value).title}` }))
  return answered(await select({ message: 'Which template?', options, initialValue: 'node' }))
}

async function askFolder(name: string): Promise<string> {
  const given = await text({
    message: 'Which folder?',
    initialValue: name,
    validate: (folder) => problemWithFolder(resolve(folder || name)),
  })
  return answered(given)
}

async function askVariables(
  template: Template,
  known: Readonly<Record<string, string>>,
): Promise<Record<string, string>> {
  const asked: Record<string, string> = {}
  for (const { name, meaning, random } of template.variables) {
    if (name in known) continue
    // The rest of the comment is for those who read the file.
    const message = `${name}: ${meaning.replace(/\. .*/, '.')} Leave it empty to ${random ? 'make one' : 'set it later'}.`
    const validate = (value: string | undefined): string | undefined =>
      value ? problemWithVariables(template, { [name]: value }) : undefined
    const value = answered(await (random ? password({ message, validate }) : text({ message, validate })))
    if (value) asked[name] = value
  }
  return asked
}

function answered<Answer extends string>(given: Answer | symbol): Answer {
  if (typeof given !== 'symbol') return given
  cancel('Nothing was written.')
  process.exit(130)
}

function variable(given: string, before: Readonly<Record<string, string>> = {}): Readonly<Record<string, string>> {
  const [, name, value] = /^(\w+)=(.*)$/.exec(given) ?? []
  if (name === undefined || value === undefined) throw new InvalidArgumentError('Write it as NAME=value.')
  return { ...before, [name]: value }
}
