import { randomBytes } from 'node:crypto'
import { flawOfSecret } from '../send/authorization.ts'
import type { Template } from './templates.ts'

/** Why variables cannot be given to a template, or nothing. Never says a value. */
export function flawOfVariables(
  { name, environmentFile, variables }: Template,
  given: Readonly<Record<string, string>>,
): string | undefined {
  const names = variables.map((variable) => variable.name)
  for (const [variable, value] of Object.entries(given)) {
    if (!names.includes(variable))
      return `The template ${name} reads no variable ${variable}. It reads ${names.join(', ')}.`
    const flaw = variable === 'WEBHOOK_SECRET' ? flawOfSecret(value) : undefined
    if (flaw !== undefined) return flaw
    if (quoted(value) === undefined)
      return `${variable} has a line end, a "$" or both kinds of quotes, which runtimes read differently from ${environmentFile}. Leave it out and write it there yourself.`
  }
  return undefined
}

/** The text of the file that a template's runtime reads its variables from. What is random and not given is made. */
export function environmentOf({ variables }: Template, given: Readonly<Record<string, string>>): string {
  return variables
    .map(({ name, meaning, random }) => {
      const value = given[name] ?? (random ? randomBytes(32).toString('hex') : '')
      return `# ${meaning}\n${name}=${quoted(value) ?? ''}\n`
    })
    .join('')
}

/** A value as Node, Bun, Deno and wrangler all read it. `undefined`: there is no such spelling. */
function quoted(value: string): string | undefined {
  if (/^[\w./:=+@,%~?&-]*$/.test(value)) return value
  if (/[$\r\n]/.test(value)) return undefined
  if (!value.includes("'")) return `'${value}'`
  return /["\\]/.test(value) ? undefined : `"${value}"`
}
