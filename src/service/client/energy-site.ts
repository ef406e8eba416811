import type { Call } from './call.ts'
import { type CommandResult, sendCommand } from './command.ts'
import { segment } from './segment.ts'
import { createReader, type ReadOptions } from './vehicle.ts'
import type { CallOptions } from './webhook.ts'

/** The settings commands that the specification names. There are others. */
export type EnergyCommand = 'backup' | 'operation' | 'storm_mode' | 'grid_import_export' | (string & {})

/** One shared energy site. Each answer is what the maker put into `response`; the specification does not show more of it. */
export interface EnergySiteResource {
  readonly id: string
  /** `…/site_info` */
  siteInfo(options?: ReadOptions): Promise<unknown>
  /** `…/live_status` */
  liveStatus(options?: ReadOptions): Promise<unknown>
  /** `…/calendar_history` */
  calendarHistory(options?: ReadOptions): Promise<unknown>
  /** `…/telemetry_history` */
  telemetryHistory(options?: ReadOptions): Promise<unknown>
  /** `…/programs` */
  programs(options?: ReadOptions): Promise<unknown>
  /** Anything else that can be read below `/api/1/energy_sites/{id}/`. */
  get(path: string, options?: ReadOptions): Promise<unknown>
  /** Changes a setting: `command('backup', { backup_reserve_percent: 20 })`. Sent once, never again. */
  command(name: EnergyCommand, body?: object, options?: CallOptions): Promise<CommandResult>
}

/** One energy site. */
export function createEnergySiteResource(call: Call, siteId: string | number): EnergySiteResource {
  const id = segment('The id of the energy site', siteId)
  const base = `/api/1/energy_sites/${id}`
  const get = createReader(call, base)
  return {
    id,
    siteInfo: (options) => get('site_info', options),
    liveStatus: (options) => get('live_status', options),
    calendarHistory: (options) => get('calendar_history', options),
    telemetryHistory: (options) => get('telemetry_history', options),
    programs: (options) => get('programs', options),
    get,
    command: async (name, body = {}, options = {}) =>
      sendCommand(call, `${base}/${segment('The command', name)}`, body, options),
  }
}
