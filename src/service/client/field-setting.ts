import type { FieldCatalogue, FieldType } from '../../events/fields.ts'
import { isJsonObject } from '../../wire/record.ts'

/** How often one field is streamed (specification: "Streaming config"). */
export interface FieldSetting {
  /** Streaming interval, in whole seconds from 1 up. */
  readonly interval_seconds: number
  /** The least change before a new value is sent: a number from 0 up. */
  readonly minimum_delta?: number
  /** After how many seconds an unchanged value is sent again: whole, from 1 up. */
  readonly resend_interval_seconds?: number
}

/** A setting for a field of this type: only what can change by more or less has a `minimum_delta`. */
export type FieldSettingOf<Type extends FieldType> = Type extends 'number' | 'timestamp' | 'location' | 'any'
  ? FieldSetting
  : FieldSetting & { readonly minimum_delta?: never }

/** Field name to setting. Names of the catalogue are completed, and their settings are checked by the field's type. */
export type FieldSettings<Fields extends FieldCatalogue> = {
  readonly [Name in keyof Fields]?: FieldSettingOf<Fields[Name]>
} & { readonly [name: string]: FieldSetting | undefined }

/** Why a map of field settings would be refused, or nothing. */
export function flawOfFields(fields: unknown): string | undefined {
  if (!isJsonObject(fields))
    return '`fields` must map field names to settings, for instance { BatteryLevel: { interval_seconds: 60 } }.'
  for (const [name, setting] of Object.entries(fields)) {
    const flaw = setting === undefined ? undefined : flawOfSetting(setting)
    if (flaw !== undefined) return `\`fields.${name}\` ${flaw}`
  }
  return undefined
}

function flawOfSetting(setting: unknown): string | undefined {
  if (!isJsonObject(setting)) return 'must be a setting such as { interval_seconds: 60 }.'
  const { interval_seconds: interval, minimum_delta: delta, resend_interval_seconds: resend } = setting
  if (!isSeconds(interval)) return 'must have `interval_seconds`, a whole number from 1 up.'
  if (delta !== undefined && !(typeof delta === 'number' && Number.isFinite(delta) && delta >= 0)) {
    return 'has a `minimum_delta` that is no number from 0 up.'
  }
  if (resend !== undefined && !isSeconds(resend))
    return 'has a `resend_interval_seconds` that is no whole number from 1 up.'
  return undefined
}

function isSeconds(value: unknown): boolean {
  return Number.isSafeInteger(value) && Number(value) >= 1
}
