import { basename, relative, resolve } from 'node:path'
import type { Command } from 'commander'
import { localOrigin, packageVersion } from './own-package.ts'
import {
  inShell,
  nextCommands,
  problemWithFolder,
  projectName,
  readTemplate,
  type Template,
  templateNames,
  writeProject,
} from './project.ts'

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
  if (!names.includes(template)) bad(`There is no template "${template}". There are ${names.join(', ')}.`)
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
}

function done({ title, environmentFile, variables }: Template, where: string): string {
  const empty = variables.filter(({ random, otherwise }) => !random && !otherwise).map(({ name }) => name)
  const left = empty.length > 0 ? ` Add ${empty.join(', ')} there.` : ''
  return `${title}: written to ${where}. Its secret is in ${environmentFile}. Set it as the \`auth\` of the webhook.${left}`
}
