import type { Command } from 'commander'
import type { ConfigResult, FieldSetting, StreamingConfig } from '../../src/service/client/config.ts'
import { columns } from './service/columns.ts'
import { type Asking, asks, statuses } from './service/command.ts'
import { configFile, fieldSetting } from './service/settings.ts'

interface Given {
  readonly file?: StreamingConfig
}

/** Commander makes an empty list of no arguments. */
type Settings = Readonly<Record<string, FieldSetting>> | readonly []

const examples = `
Examples:
  fleethook config patch 0FLEETV14T0000004 BatteryLevel=60,delta=1 Location=10
  fleethook config get 0FLEETV14T0000004 --json | fleethook config replace 0FLEETV14T0000012 --file -
${statuses}`

/** `fleethook config get|patch|replace|stop|default` */
export function define(command: Command): void {
  command.description('What vehicles stream. A vehicle has one config, for everyone who streams from it.')

  const get = command.command('get').description('Shows the config of a vehicle.').argument('<vin>')
  asks<[string], object>(get.addHelpText('after', statuses), async ({ client, signal, print }, _options, vin) => {
    const config = await client.config(vin).get({ signal })
    print(config, () => shown(config.fields))
  })

  for (const [name, description] of [
    ['patch', 'Adds or changes fields of a vehicle’s config, and keeps the others.'],
    ['replace', 'Replaces the whole config of a vehicle.'],
  ] as const) {
    const change = withSettings(command.command(name).description(description).argument('<vin>'))
    asks<[string, Settings], Given>(change, async (asking, given, vin, settings) =>
      told(asking, await asking.client.config(vin)[name](chosen(change, given, settings), asking)),
    )
  }

  const stop = command
    .command('stop')
    .description('Stops the streaming of a vehicle, for everyone who streams from it.')
    .argument('<vin>')
  asks<[string], object>(stop.addHelpText('after', statuses), async ({ client, signal, print }, _options, vin) => {
    await client.config(vin).stop({ signal })
    print({ stopped: vin }, () => `${vin} streams no more.`)
  })

  const standard = withSettings(
    command
      .command('default')
      .description('Shows the config that vehicles begin with when a customer shares them; with settings, sets it.'),
  )
  asks<[Settings], Given>(standard, async (asking, given, settings) => {
    const { client, signal, print } = asking
    if (!Array.isArray(settings) || given.file !== undefined) {
      return told(asking, await client.defaultConfig.set(chosen(standard, given, settings), { signal }))
    }
    const config = await client.defaultConfig.get({ signal })
    print(config, () => (config === null ? 'None is set.' : shown(config.fields)))
    return 0
  })
}

function withSettings(command: Command): Command {
  return command
    .argument('[settings...]', 'FIELD=SECONDS, with ,delta=N and ,resend=SECONDS where wanted', fieldSetting)
    .option('--file <path>', 'a config as JSON instead; - is the standard input', configFile)
    .addHelpText('after', examples)
}

function chosen(command: Command, { file }: Given, settings: Settings): StreamingConfig {
  const given = Array.isArray(settings) ? undefined : ({ fields: settings } as StreamingConfig)
  if (file !== undefined && given !== undefined) command.error('error: give settings or --file, not both.')
  return file ?? given ?? command.error('error: which fields? Give settings such as BatteryLevel=60, or --file.')
}

/** What was ignored is told by the client's log, and by the exit status. */
function told({ print }: Asking, result: ConfigResult): number {
  print(result, () => (result.fields === undefined ? 'Done.' : shown(result.fields)))
  return result.ignoredFields.length > 0 ? 3 : 0
}

function shown(fields: { readonly [name: string]: FieldSetting | null | undefined }): string {
  const rows = Object.entries(fields).map(([name, setting]) => [
    name,
    setting ? `every ${setting.interval_seconds} s` : 'at its default interval',
    setting?.minimum_delta === undefined ? '' : `changed by ${setting.minimum_delta}`,
    setting?.resend_interval_seconds === undefined ? '' : `again after ${setting.resend_interval_seconds} s`,
  ])
  return rows.length === 0 ? 'No fields.' : columns(rows)
}
