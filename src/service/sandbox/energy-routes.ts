import type { JsonObject } from '../../wire/record.ts'
import { readOptionalBody, refuse, refuseBody, refuseMethod, refusePath } from './answers.ts'
import type { World } from './world.ts'

/** Answers a request below `/api/1/energy_sites/{id}`. */
type EnergySites = (id: string, rest: string, request: Request) => Promise<Response>

const firstId = 12_345

/** The ids of the shared energy sites. */
export function siteIds(count: number): readonly string[] {
  return Array.from({ length: count }, (_, index) => String(firstId + index))
}

/** Energy sites. Their solar power follows the sandbox's clock, and they keep the settings that commands change. */
export function createEnergySites(world: World): EnergySites {
  const settings = new Map(siteIds(world.settings.energySites).map((id) => [id, initial]))

  return async (id, rest, request) => {
    const kept = settings.get(id)
    if (kept === undefined) {
      return refuse('energy_site_not_found', `No energy site ${id} is shared with this business.`)
    }
    const read = Object.hasOwn(reads, rest) ? reads[rest] : undefined
    if (read !== undefined) {
      if (request.method !== 'GET' && request.method !== 'HEAD') return refuseMethod('GET')
      return Response.json({ response: read(id, kept, world.now()) })
    }
    if (!/^[a-z][a-z0-9_]*$/.test(rest)) return refusePath()
    if (request.method === 'GET' || request.method === 'HEAD') return refusePath()
    if (request.method !== 'POST') return refuseMethod('POST')
    if (!world.settings.commands.energy) {
      return refuse('insufficient_scope', 'This business did not ask for command access to energy sites.')
    }
    const body = await readOptionalBody(request)
    if (body === undefined) return refuseBody()
    settings.set(id, changed(kept, rest, body))
    return Response.json({ response: { result: true, reason: '', code: 201, message: 'Updated' } })
  }
}

const initial: JsonObject = {
  backup_reserve_percent: 20,
  default_real_mode: 'self_consumption',
  user_settings: { storm_mode_enabled: false },
}

/** The settings in `site_info` after a command. */
function changed(kept: JsonObject, command: string, body: JsonObject): JsonObject {
  switch (command) {
    case 'backup':
    case 'operation':
      return { ...kept, ...body }
    case 'storm_mode':
      return { ...kept, user_settings: { storm_mode_enabled: body['enabled'] === true } }
    case 'grid_import_export':
      return { ...kept, components: body }
    default:
      return kept
  }
}

const dayMs = 86_400_000
const solarWatts = (now: number): number =>
  Math.round(Math.max(0, Math.sin(((now % dayMs) / dayMs) * 2 * Math.PI - Math.PI / 2)) * 5_200)

type SiteRead = (id: string, kept: JsonObject, now: number) => unknown

const reads: Readonly<Record<string, SiteRead>> = {
  site_info: (id, kept) => ({ id, site_name: `Site ${id}`, installation_time_zone: 'Etc/UTC', ...kept }),
  live_status: (_id, _kept, now) => ({
    solar_power: solarWatts(now),
    load_power: 900,
    battery_power: 0,
    grid_power: 900 - solarWatts(now),
    percentage_charged: 64.2,
    grid_status: 'Active',
    island_status: 'on_grid',
    storm_mode_active: false,
    timestamp: new Date(now).toISOString(),
  }),
  calendar_history: (_id, _kept, now) => ({ period: 'day', time_series: hours(now) }),
  telemetry_history: (_id, _kept, now) => ({ period: 'day', time_series: hours(now) }),
  programs: () => ({ programs: [] }),
}

function hours(now: number): readonly object[] {
  return Array.from({ length: 24 }, (_, back) => {
    const at = now - (23 - back) * 3_600_000
    return {
      timestamp: new Date(at).toISOString(),
      solar_energy_exported: solarWatts(at),
      consumer_energy_imported: 900,
    }
  })
}
