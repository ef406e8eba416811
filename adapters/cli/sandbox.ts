import { type Command, InvalidArgumentError, Option } from 'commander'
import type { FieldSetting } from '../../src/service/client/config.ts'
import { FleethookError } from '../../src/base/errors.ts'
import { colorsFor } from './colors.ts'
import { environment } from './service/environment.ts'
import { fieldSetting } from './service/settings.ts'

interface Given {
  readonly port: number
  readonly hostname: string
  readonly allowLocal?: true
  readonly data?: string
  readonly vehicles: number
  readonly sites: number
  readonly commands: 'all' | 'charging' | 'none'
  readonly energyCommands: boolean
  readonly seed: number
  readonly startAt?: number
  readonly speed: number
  readonly stream?: Readonly<Record<string, FieldSetting>>
  readonly dotenv: string
}

/** `fleethook sandbox` */
export function define(command: Command): void {
  command
    .description(
      'Serves a stand-in for the service: all its endpoints, and simulated vehicles that post to the webhook that is set. ' +
        'For development and tests.',
    )
    .option('-p, --port <n>', 'the port; 0 takes any free one', whole(0, 65_535), 4_000)
    .option('--hostname <name>', 'the address to listen on', '127.0.0.1')
    .option('--allow-local', 'let the webhook be on this machine (loopback), which the real service refuses')
    .option('--data <file>', 'keep webhook, configs and sharing in a file of SQLite (default: in memory)')
    .option('--vehicles <n>', 'how many vehicles are shared', whole(0, 1_000), 3)
    .option('--sites <n>', 'how many energy sites are shared', whole(0, 100), 1)
    .addOption(
      new Option('--commands <access>', 'which vehicle commands the business asked for')
        .choices(['all', 'charging', 'none'])
        .default('all'),
    )
    .option('--no-energy-commands', 'the business asked for no commands to energy sites')
    .option(
      '--stream <settings...>',
      'what the vehicles stream from the beginning, as BatteryLevel=60,delta=1 Location=10 (default: nothing)',
      fieldSetting,
    )
    .option('--seed <n>', 'the same seed gives the same vehicles', whole(0, 0x7fff_ffff), 1)
    .option('--start-at <time>', 'when the vehicles wake up, ISO 8601 (default: now)', time)
    .option('--speed <n>', 'seconds that pass for the vehicles in each second; 0: only by /sandbox/clock', speed, 1)
    .option('--dotenv <path>', 'where to look for variables that are not set', '.env')
    .addHelpText(
      'after',
      `
Environment: SERVICE_API_KEY, the bearer key that is asked for, also read from .env; several with commas between. Without it
a new one is made and printed.

Examples:
  fleethook sandbox --allow-local --stream BatteryLevel=60 Location=10
  fleethook sandbox --allow-local --speed 0 --seed 7 --data sandbox.db

Exit status: 0 after Ctrl+C, 1 it could not listen or use the file of --data, 2 bad usage.`,
    )
    .action(async () => {
      const given = command.opts<Given>()
      const apiKey = environment(given.dotenv)('SERVICE_API_KEY')?.split(',')
      const { run } = await import('./sandbox/run.ts')
      try {
        await run({
          apiKey,
          port: given.port,
          hostname: given.hostname,
          data: given.data,
          allowLocal: given.allowLocal ?? false,
          vehicles: given.vehicles,
          energySites: given.sites,
          commands: { vehicle: given.commands, energy: given.energyCommands },
          seed: given.seed,
          speed: given.speed,
          ...(given.startAt === undefined ? {} : { startAt: given.startAt }),
          ...(given.stream === undefined ? {} : { config: { fields: given.stream } }),
        })
      } catch (error) {
        if (!(error instanceof Error)) throw error
        console.error(`${colorsFor(process.stderr).red('error:')} ${error.message}`)
        process.exitCode = error instanceof FleethookError ? 2 : 1
      }
    })
}

function whole(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = Number(text)
    if (text.trim() !== '' && Number.isInteger(value) && value >= min && value <= max) return value
    throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`)
  }
}

function speed(text: string): number {
  const value = Number(text)
  if (text.trim() !== '' && value >= 0 && value <= 1_000) return value
  throw new InvalidArgumentError('It must be a number from 0 to 1000.')
}

function time(text: string): number {
  const ms = Date.parse(text)
  if (!Number.isNaN(ms)) return ms
  throw new InvalidArgumentError('It must be a time such as 2026-06-01T08:00:00Z.')
}
