import type { Command } from 'commander'
import type { ConfigResult, FieldSetting, StreamingConfig } from '../../src/service/client/config.ts'
import { type Asking, asks, configFile, fieldSetting, statuses } from './service.ts'
import { escapeControls } from '../../src/events/summarize.ts'
import { columns } from './terminal.ts'

interface Given {
  readonly file?: StreamingConfig
}

/** Commander gives an empty list when there are no arguments. */
type GivenSettings = Readonly<Record<string, FieldSetting>> | readonly []

const examples = `
Examples:
  fleethook config patch 0FLEETV14T0000004 BatteryLevel=60,delta=1 Location=10
  fleethook config get 0FLEETV14T0000004 --json | fleethook config replace 0FLEETV14T0000012 --file -
${statuses}`

export function defineConfig(command: Command): void {
  command.description('The fields that vehicles stream. A vehicle has one config, which all businesses share.')

  const get = command.command('get').description('Shows the config of a vehicle.').argument('<vin>')
  asks<[string], object>(get.addHelpText('after', statuses), async ({ client, signal, print }, _options, vin) => {
    const config = await client.config(vin).get({ signal })
    print(config, () => shown(config.fields))
  })

  for (const [name, description] of [
    ['patch', 'Adds or changes fields in the config of a vehicle, and keeps the others.'],
    ['replace', 'Replaces the whole config of a vehicle.'],
  ] as const) {
    const change = withSettings(command.command(name).description(description).argument('<vin>'))
    asks<[string, GivenSettings], Given>(change, async (asking, given, vin, settings) =>
      printChange(asking, await asking.client.config(vin)[name](chosen(change, given, settings), asking)),
    )
  }

  const stop = command
    .command('stop')
    .description('Stops the streaming of a vehicle, for all businesses.')
    .argument('<vin>')
  asks<[string], object>(stop.addHelpText('after', statuses), async ({ client, signal, print }, _options, vin) => {
    await client.config(vin).stop({ signal })
    print({ stopped: vin }, () => `${escapeControls(vin)} no longer streams.`)
  })

  const standard = withSettings(
    command.command('default').description('Shows the config of newly shared vehicles. With settings, sets it.'),
  )
  asks<[GivenSettings], Given>(standard, async (asking, given, settings) => {
    const { client, signal, print } = asking
    if (!Array.isArray(settings) || given.file !== undefined) {
      return printChange(asking, await client.defaultConfig.set(chosen(standard, given, settings), { signal }))
    }
    const config = await client.defaultConfig.get({ signal })
    print(config, () => (config === null ? 'No default config is set.' : shown(config.fields)))
    return 0
  })
}

function withSettings(command: Command): Command {
  return command
    .argument('[settings...]', 'FIELD=SECONDS, optionally with ,delta=N and ,resend=SECONDS', fieldSetting)
    .option('--file <path>', 'a config as JSON; - reads the standard input', configFile)
    .addHelpText('after', examples)
}

function chosen(command: Command, { file }: Given, settings: GivenSettings): StreamingConfig {
  const given = Array.isArray(settings) ? undefined : ({ fields: settings } as StreamingConfig)
  if (file !== undefined && given !== undefined) command.error('error: give settings or --file, not both.')
  return file ?? given ?? command.error('error: No fields are given. Give settings such as BatteryLevel=60, or --file.')
}

/** The client's log names the fields that the service ignored. The exit status is then 3. */
function printChange({ print }: Asking, result: ConfigResult): number {
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
