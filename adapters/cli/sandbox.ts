import type { Command } from 'commander'
import type { FieldSetting } from '../../src/service/client/config.ts'
import { FleethookError } from '../../src/base/errors.ts'
import { defined } from '../../src/base/options.ts'
import { dotenvOption, environment, number, whole } from './arguments.ts'
import { fieldSetting } from './service.ts'
import { printError } from './terminal.ts'

interface Given {
  readonly port: number
  readonly hostname: string
  readonly allowLocal?: true
  readonly vehicles: number
  readonly sites: number
  readonly seed: number
  readonly speed: number
  readonly stream?: Readonly<Record<string, FieldSetting>>
  readonly rateLimit?: number
  readonly dotenv: string
}

export function defineSandbox(command: Command): void {
  command
    .description(
      'Runs a local stand-in for the service: all its endpoints, and simulated vehicles that post to your webhook. ' +
        'For development and tests.',
    )
    .option('-p, --port <n>', 'the port; 0 takes any free port', whole(0, 65_535), 4_000)
    .option('--hostname <name>', 'the address to listen on', '127.0.0.1')
    .option('--allow-local', 'accept a webhook on this machine (loopback), which the real service refuses')
    .option('--vehicles <n>', 'number of shared vehicles', whole(0, 1_000), 3)
    .option('--sites <n>', 'number of shared energy sites', whole(0, 100), 1)
    .option(
      '--stream <settings...>',
      'what the vehicles stream from the start, for instance BatteryLevel=60,delta=1 Location=10 (default: nothing)',
      fieldSetting,
    )
    .option('--seed <n>', 'the same seed gives the same vehicles', whole(0, 0x7fff_ffff), 1)
    .option('--speed <n>', 'vehicle seconds per second; 0: time passes only by /sandbox/clock', number(0, 1_000), 1)
    .option(
      '--rate-limit <n>',
      'requests per minute; more are answered with 429 (default: no limit)',
      whole(1, 1_000_000),
    )
    .addOption(dotenvOption)
    .addHelpText(
      'after',
      `
Environment: SERVICE_API_KEY, the bearer key that clients send, also read from .env.
Without it, the command makes a new key and prints it.

Examples:
  fleethook sandbox --allow-local --stream BatteryLevel=60 Location=10
  fleethook sandbox --allow-local --speed 0 --seed 7

Exit status: 0 after Ctrl+C, 1 it could not listen, 2 bad usage.`,
    )
    .action(async () => {
      const given = command.opts<Given>()
      const apiKey = environment(given.dotenv)('SERVICE_API_KEY')
      const { run } = await import('./sandbox-server.ts')
      try {
        await run({
          apiKey,
          port: given.port,
          hostname: given.hostname,
          allowLocal: given.allowLocal ?? false,
          vehicles: given.vehicles,
          energySites: given.sites,
          seed: given.seed,
          speed: given.speed,
          ...defined({ rateLimit: given.rateLimit, config: given.stream && { fields: given.stream } }),
        })
      } catch (error) {
        if (!(error instanceof FleethookError)) throw error
        printError(error)
        process.exitCode = error.code === 'option_invalid' ? 2 : 1
      }
    })
}
