import { readFileSync } from 'node:fs'
import { InvalidArgumentError } from 'commander'
import { type FieldSetting, problemWithFields, type StreamingConfig } from '../../../src/service/client/config.ts'

const form =
  'It must be a field and its interval in seconds, as in BatteryLevel=60 or BatteryLevel=60,delta=1,resend=300.'

/** Reads `BatteryLevel=60,delta=1,resend=300` as the setting of a field, into what was read before. */
export function fieldSetting(
  text: string,
  before: Readonly<Record<string, FieldSetting>> = {},
): Readonly<Record<string, FieldSetting>> {
  const [, name, interval, rest = ''] = /^(\w+)=(\d+)((?:,\w+=[\d.]+)*)$/.exec(text) ?? []
  if (name === undefined) throw new InvalidArgumentError(form)
  const setting: Record<string, number> = { interval_seconds: Number(interval) }
  for (const part of rest.split(',').filter((given) => given !== '')) {
    const [key, value] = part.split('=')
    if (key === 'delta') setting['minimum_delta'] = Number(value)
    else if (key === 'resend') setting['resend_interval_seconds'] = Number(value)
    else throw new InvalidArgumentError(form)
  }
  const fields = { ...before, [name]: setting }
  const problem = problemWithFields(fields)
  if (problem !== undefined) throw new InvalidArgumentError(problem)
  return fields as Readonly<Record<string, FieldSetting>> // oxlint-disable-line no-unsafe-type-assertion -- just checked
}

/** Reads a config from a file, or from the standard input when it is called `-`: `{"fields": {…}}`, or the map alone. */
export function configFile(path: string): StreamingConfig {
  let value: unknown
  try {
    value = JSON.parse(readFileSync(path === '-' ? 0 : path, 'utf8'))
  } catch (error) {
    throw new InvalidArgumentError(error instanceof SyntaxError ? 'It is not JSON.' : 'It cannot be read.')
  }
  const fields = typeof value === 'object' && value !== null && 'fields' in value ? value.fields : value
  const problem = problemWithFields(fields)
  if (problem !== undefined) throw new InvalidArgumentError(problem)
  return { fields } as StreamingConfig // oxlint-disable-line no-unsafe-type-assertion -- just checked
}
