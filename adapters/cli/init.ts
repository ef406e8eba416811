import { basename, relative, resolve } from 'node:path'
import { cancel, intro, outro, password, select, text } from '@clack/prompts'
import { type Command, InvalidArgumentError } from 'commander'
import { packageVersion } from './own-package.ts'
import { flawOfSecret } from './send/authorization.ts'
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

  const folder = resolve(dir ?? (ask ? await askFolder(name) : name))
  const flaw = flawOfFolder(folder) ?? (given.secret === undefined ? undefined : flawOfSecret(given.secret))
  if (flaw !== undefined) return bad(command, flaw)

  const variables = {
    ...(given.secret === undefined ? {} : { WEBHOOK_SECRET: given.secret }),
    ...given.set,
  }
  const missing = ask ? await askVariables(chosen, variables) : {}
  const project =
    given.name ??
    basename(folder)
      .toLowerCase()
      .replaceAll(/[^a-z0-9._-]+/g, '-')
  writeProject({
    template: chosen,
    folder,
    name: project,
    version: packageVersion(),
    variables: { ...variables, ...missing },
  })

  const [install, run] = nextCommands(chosen)
  const where = relative(process.cwd(), folder) || '.'
  const done = `${chosen.title}: written to ${where}. The secret is in ${chosen.files.has('wrangler.jsonc') ? '.dev.vars' : '.env'}; set it as \`auth\` of the webhook.`
  if (ask) outro(done)
  else console.log(done)
  console.log(`\n  ${where === '.' ? '' : `cd ${where} && `}${install}\n  ${run}\n`)
}

/** Bad usage: one line, status 2. */
function bad(command: Command, message: string): never {
  return command.error(`error: ${message}`, { exitCode: 2 })
}

function suggestion(name: string, names: readonly string[]): string {
  const near = names.find((known) => known.startsWith(name.slice(0, 3)) || known.includes(name))
  return near === undefined ? `There are ${names.join(', ')}.` : `Did you mean ${near}? There are ${names.join(', ')}.`
}

async function askTemplate(names: readonly string[]): Promise<string> {
  const options = names.map((value) => ({ value, label: value, hint: readTemplate(value).title }))
  return answered(await select({ message: 'Which template?', options }))
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
  for (const { name, meaning } of template.variables) {
    if (name in known) continue
    const given =
      name === 'WEBHOOK_SECRET'
        ? await password({
            message: `${meaning} Leave it empty for a new one.`,
            validate: (secret) => (secret ? flawOfSecret(secret) : undefined),
          })
        : await text({ message: `${name}: ${meaning}`, defaultValue: '' })
    const value = answered(given)
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
