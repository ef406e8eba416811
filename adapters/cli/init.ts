import { basename, relative, resolve } from 'node:path'
import { cancel, intro, outro, password, select, text } from '@clack/prompts'
import { type Command, InvalidArgumentError } from 'commander'
import { colorsFor } from './colors.ts'
import { packageVersion } from './own-package.ts'
import { flawOfVariables } from './init/environment.ts'
import { nodeNeeded } from './init/node-needed.ts'
import { flawOfName, projectName } from './init/project-name.ts'
import { readTemplate, type Template, templateNames } from './init/templates.ts'
import { flawOfFolder, nextCommands, writeProject } from './init/write-project.ts'

interface Given {
  readonly yes?: true
  readonly name?: string
  readonly secret?: string
  readonly set?: Readonly<Record<string, string>>
}

/** `fleethook init`: copies a template into a folder of its own and makes it ready to run. */
export function define(command: Command): void {
  command
    .description(
      'Copies a template into a new folder, writes a strong secret into its .env, and says what to type next. ' +
        'Never overwrites anything. Asks for what is missing, on a terminal.',
    )
    .argument('[template]', `which one: ${templateNames().join(', ')}`)
    .argument('[dir]', 'where to; must not exist, or be empty')
    .option('-y, --yes', 'ask nothing, take the defaults')
    .option('-n, --name <name>', 'the name of the project (default: that of the folder)')
    .option('-s, --secret <secret>', 'what is set as `auth` of the webhook (default: 32 random bytes)')
    .option('--set <NAME=value>', "another of the template's variables; may be given several times", variable)
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
  const ask = process.stdin.isTTY && process.stdout.isTTY && given.yes !== true
  if (ask) intro('fleethook init')

  const names = templateNames()
  const name = template ?? (ask ? await askTemplate(names) : undefined)
  if (name === undefined) return bad(command, `Which template? One of ${names.join(', ')}.`)
  if (!names.includes(name)) return bad(command, `There is no template "${name}". ${suggestion(name, names)}`)
  const chosen = readTemplate(name)

  const flagged: Readonly<Record<string, string>> = {
    ...(given.secret === undefined ? {} : { WEBHOOK_SECRET: given.secret }),
    ...given.set,
  }
  const flaw =
    (given.name === undefined ? undefined : flawOfName(given.name)) ??
    (dir === undefined ? undefined : flawOfFolder(resolve(dir))) ??
    flawOfVariables(chosen, flagged)
  if (flaw !== undefined) return bad(command, flaw)

  const folder = resolve(dir ?? (ask ? await askFolder(name) : name))
  const flawAfterAll = flawOfFolder(folder)
  if (flawAfterAll !== undefined) return bad(command, flawAfterAll)
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
  const told = done(chosen, where, variables)
  if (ask) outro(told)
  else console.log(told)
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
  const left = empty.length > 0 ? ` Put ${empty.join(', ')} there as well.` : ''
  return `${title}: written to ${where}. The secret is in ${environmentFile}; set it as \`auth\` of the webhook.${left}`
}

/** Bad usage: one line, status 2. */
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
    message: 'Where to?',
    initialValue: name,
    validate: (folder) => flawOfFolder(resolve(folder || name)),
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
    // The first sentence says what it is; the rest is for those who fill in the file.
    const message = `${name}: ${meaning.replace(/\. .*/, '.')} Leave it empty ${random ? 'for a new one' : 'to fill it in later'}.`
    const validate = (value: string | undefined): string | undefined =>
      value ? flawOfVariables(template, { [name]: value }) : undefined
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
