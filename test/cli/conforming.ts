import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import * as z from 'zod'
import type { ConformResult } from '../../adapters/cli/conform.ts'
import type { Result } from '../../adapters/cli/conform/checks.ts'
import { restartable, type Restartable } from '../conformance/restartable.ts'
import { command } from './command.ts'

const program = fileURLToPath(new URL('../../bench/servers/by-hand.ts', import.meta.url))

/** With letters in both cases, and figures. */
export const secret = 'aB3-of-A-test'

/** A receiver written by hand in Express, with mistakes. */
export function byHand(holes: string): Promise<Restartable> {
  return restartable((port, FOLDER) => ({
    runtime: 'by hand',
    command: process.execPath,
    args: [program],
    env: { FOLDER, PORT: String(port), WEBHOOK_SECRET: secret, HOLES: holes },
  }))
}

/** Its list of what it has handled. */
export const handledBy = ({ folder }: Restartable): string => join(folder, 'handled.log')

const resultSchema = z.object({
  ...{ url: z.string(), pass: z.number(), fail: z.number(), unchecked: z.number() },
  checks: z.array(
    z.object({
      ...{ group: z.string(), name: z.string(), aspect: z.enum(['answer', 'handled']) },
      ...{ result: z.enum(['pass', 'fail', 'unchecked']), detail: z.string().optional() },
    }),
  ),
  answerMs: z.object({ p50: z.number(), p99: z.number(), max: z.number() }).nullable(),
})
const printed = z.custom<ConformResult>((value) => resultSchema.safeParse(value).success, 'No report of `--json`.')

/** A report and the exit status of the command. */
export interface Report extends ConformResult {
  readonly status: number | null
}

/** Runs `fleethook conform --json`. */
export async function conform(url: string, ...args: readonly string[]): Promise<Report> {
  const { status, stdout, stderr } = await command(['conform', '--url', url, '--json', ...args], {
    WEBHOOK_SECRET: secret,
  })
  if (stdout === '') throw new Error(stderr)
  return { ...printed.parse(JSON.parse(stdout)), status }
}

/** The checks with a result, as lines. */
export const withResult = ({ checks }: Report, result: Result): readonly string[] =>
  checks
    .filter((check) => check.result === result)
    .map(({ group, name, aspect, detail = '' }) => `${group}, ${name} (${aspect}): ${detail}`)
