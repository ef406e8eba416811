import { fileURLToPath } from 'node:url'
import type { TargetCommand } from '../conformance/spawn.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))

/** What makes a template of this checkout run on its sources. */
export const onSources: readonly string[] = ['--import', `${root}test/docs/resolve-sources.ts`]

/** The secret of every template that runs. */
export const secret = 'a-secret-for-this-test'

/** A template as it is, on any free port. `cwd`: where it writes files. Default: its own folder. */
export function templateCommand(
  template: string,
  env: Readonly<Record<string, string>>,
  cwd: string = `${root}examples/${template}`,
): TargetCommand {
  return {
    ...{ runtime: template, command: process.execPath, cwd },
    args: [...onSources, `${root}examples/${template}/server.ts`],
    env: { PORT: '0', WEBHOOK_SECRET: secret, NO_COLOR: '1', ...env },
  }
}
