import { isJsonObject, type JsonObject } from '../../wire/record.ts'
import { readOptionalBody, refuse, refuseBody, refuseMethod, refusePath, refuseProduct } from './answers.ts'
import { energyCommands, problemWithCommand } from './commands.ts'

/** An energy site. It has the members that clients read, and its figures never change. */
export interface EnergySite {
  readonly id: string
  /** `site_info`, with the settings that commands changed. */
  info: JsonObject
}

export function createSites(count: number): readonly EnergySite[] {
  return Array.from({ length: count }, (_, index) => {
    const id = String(12_345 + index)
    return {
      id,
      info: { id: `STE2026-${id}`, energy_site_id: Number(id), site_name: `Site ${index + 1}`, ...siteInfo },
    }
  })
}

const tariff: JsonObject = {
  version: 1,
  code: 'SANDBOX-TOU',
  name: 'Night and day',
  utility: 'Sandbox',
  currency: 'EUR',
}
const gateway: JsonObject = { device_id: 'gateway-1', din: '1232100-00-J--SANDBOX', is_active: true }
const capacityWh = 27_000

const siteInfo: JsonObject = {
  asset_site_id: 'asset-1',
  site_number: 'STE2026',
  gateway_id: gateway['din'],
  backup_reserve_percent: 20,
  vpp_backup_reserve_percent: 20,
  off_grid_vehicle_charging_reserve_percent: 0,
  default_real_mode: 'self_consumption',
  installation_date: '2024-05-02T10:00:00+00:00',
  installation_time_zone: 'Etc/UTC',
  time_zone_offset: 0,
  version: '26.34.1 0d5c1f2e',
  battery_count: 2,
  nameplate_power: 10_000,
  nameplate_energy: capacityWh,
  max_site_meter_power_ac: 1_000_000_000,
  min_site_meter_power_ac: -1_000_000_000,
  tariff_id: tariff['code'],
  tariff_content: tariff,
  tariff_content_v2: tariff,
  utility: tariff['utility'],
  rate_plan_manager_supported: true,
  rate_plan_manager_no_pricing_constraint: true,
  net_meter_mode: 'battery_ok',
  default_island_mode: 'on_grid',
  island_status: 'on_grid',
  grid_status: 'Active',
  country: 'DE',
  currency: tariff['currency'],
  geolocation: { latitude: 51.313, longitude: 9.481, source: 'Site Address Preference' },
  address: { address_line1: 'Teststrasse 1', city: 'Teststadt', state: 'HE', zip: '34117', country: 'DE' },
  user_settings: { storm_mode_enabled: false, onboarding_settings_set: true, vpp_tour_enabled: true },
  components: {
    solar: true,
    solar_type: 'pv_panel',
    battery: true,
    battery_type: 'ac_battery',
    grid: true,
    backup: true,
    load_meter: true,
    gateway: 'gateway',
    tou_capable: true,
    storm_mode_capable: true,
    off_grid_vehicle_charging_reserve_supported: true,
    customer_preferred_export_rule: 'battery_ok',
    disallow_charge_from_grid_with_solar_installed: false,
    gateways: [gateway],
    batteries: [{ device_id: 'battery-1', din: '2012170-25-E--SANDBOX', nameplate_energy: capacityWh }],
    inverters: [{ device_id: 'inverter-1', din: '1538100-00-F--SANDBOX', is_active: true }],
    wall_connectors: [{ device_id: 'wall-1', din: '1457768-02-G--SANDBOX', is_active: true }],
  },
}

/** The members of `site_info` that a command changes. Its parameters were checked before. */
function changedBy(command: string, body: JsonObject, { info }: EnergySite): JsonObject {
  const inside = (member: string, change: JsonObject): JsonObject => ({
    [member]: { ...Object(info[member]), ...change },
  })
  switch (command) {
    case 'storm_mode':
      return inside('user_settings', { storm_mode_enabled: body['enabled'] })
    case 'grid_import_export':
      return inside('components', body)
    case 'time_of_use_settings': {
      const { tariff_content_v2: sent } = Object(body['tou_settings'])
      return isJsonObject(sent) ? { tariff_content: sent, tariff_content_v2: sent } : {}
    }
    default:
      return body
  }
}

export const liveStatus = (now: number): JsonObject => ({
  solar_power: 3_200,
  energy_left: 18_000,
  total_pack_energy: capacityWh,
  percentage_charged: 66.67,
  backup_capable: true,
  battery_power: -1_500,
  load_power: 1_100,
  grid_status: 'Active',
  grid_services_active: false,
  grid_power: -600,
  grid_services_power: 0,
  generator_power: 0,
  island_status: 'on_grid',
  storm_mode_active: false,
  timestamp: new Date(now).toISOString(),
  wall_connectors: [
    { din: '1457768-02-G--SANDBOX', wall_connector_state: 2, wall_connector_fault_state: 2, wall_connector_power: 0 },
  ],
})

interface Sites {
  site(id: string): EnergySite | undefined
  now(): number
  changeSite(site: EnergySite, change: ReturnType<typeof changedBy>): void
}

/** The series of the energy history, in watt hours. */
export const energyTotals: JsonObject = {
  solar_energy_exported: 3_200,
  generator_energy_exported: 0,
  grid_energy_imported: 0,
  grid_services_energy_imported: 0,
  grid_services_energy_exported: 0,
  grid_energy_exported_from_solar: 600,
  grid_energy_exported_from_generator: 0,
  grid_energy_exported_from_battery: 0,
  battery_energy_exported: 0,
  battery_energy_imported_from_grid: 0,
  battery_energy_imported_from_solar: 1_500,
  battery_energy_imported_from_generator: 0,
  consumer_energy_imported_from_grid: 0,
  consumer_energy_imported_from_solar: 1_100,
  consumer_energy_imported_from_battery: 0,
  consumer_energy_imported_from_generator: 0,
  total_home_usage: 1_100,
  total_battery_charge: 1_500,
  total_battery_discharge: 0,
  total_solar_generation: 3_200,
  total_grid_energy_exported: 600,
}

const reads: Readonly<Record<string, (site: EnergySite, now: number, query: URLSearchParams) => JsonObject>> = {
  site_info: ({ info }) => info,
  live_status: (_site, now) => liveStatus(now),
  calendar_history({ info }, now, query) {
    const period = query.get('period') ?? 'day'
    if (query.get('kind') === 'backup') return { period, events: [], total_events: 0 }
    const series = [{ timestamp: new Date(now).toISOString(), ...energyTotals }]
    return { serial_number: info['id'], period, installation_time_zone: 'Etc/UTC', time_series: series }
  },
  telemetry_history(_site, now) {
    const start = { seconds: Math.floor(now / 1_000) - 86_400 }
    return {
      charge_history: [{ charge_start_time: start, charge_duration: { seconds: 10_800 }, energy_added_wh: 21_900 }],
    }
  },
  programs: () => ({ programs: [] }),
}

export async function answerSite(world: Sites, id: string, rest: string, request: Request): Promise<Response> {
  const site = world.site(id)
  if (site === undefined) return refuseProduct(id)
  const { method } = request
  const isRead = method === 'GET' || method === 'HEAD'
  const read = Object.hasOwn(reads, rest) ? reads[rest] : undefined
  if (read !== undefined) {
    if (!isRead) return refuseMethod('GET')
    return Response.json({ response: read(site, world.now(), new URL(request.url).searchParams) })
  }
  if (isRead) return Object.hasOwn(energyCommands, rest) ? refuseMethod('POST') : refusePath()
  if (method !== 'POST') return refuseMethod(rest === '' ? 'GET' : 'POST')
  const body = await readOptionalBody(request)
  if (body === undefined) return refuseBody()
  const problem = problemWithCommand(energyCommands, rest, body)
  if (problem !== undefined) return refuse('invalid_command', problem)
  world.changeSite(site, changedBy(rest, body, site))
  return Response.json({ response: { result: true, reason: '', code: 201, message: 'Updated' } })
}
