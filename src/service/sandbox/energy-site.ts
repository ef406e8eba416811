import type { JsonObject } from '../../wire/record.ts'

/** An energy site with solar panels, a battery and a charger for cars. Its power follows the time of day. */
export interface EnergySite {
  readonly id: string
  readonly index: number
  /** Settings that commands change. */
  settings: SiteSettings
}

const firstId = 12_345
const timeZone = 'Etc/UTC'
const hourMs = 3_600_000
const dayMs = 24 * hourMs

export function createSites(count: number): readonly EnergySite[] {
  return Array.from({ length: count }, (_, index) => ({
    id: String(firstId + index),
    index,
    settings: new SiteSettings(),
  }))
}

const tariff: JsonObject = {
  version: 1,
  code: 'SANDBOX-TOU',
  name: 'Night and day',
  utility: 'Sandbox Power',
  currency: 'EUR',
  daily_charges: [{ name: 'Charge', amount: 0.35 }],
  demand_charges: { ALL: { rates: { ALL: 0 } } },
  energy_charges: { Year: { rates: { ON_PEAK: 0.34, OFF_PEAK: 0.21 } } },
  seasons: {
    Year: {
      fromMonth: 1,
      fromDay: 1,
      toMonth: 12,
      toDay: 31,
      tou_periods: {
        ON_PEAK: { periods: [{ fromDayOfWeek: 0, toDayOfWeek: 6, fromHour: 7, toHour: 22 }] },
        OFF_PEAK: { periods: [{ fromDayOfWeek: 0, toDayOfWeek: 6, fromHour: 22, toHour: 7 }] },
      },
    },
  },
}

class SiteSettings {
  readonly backupReservePercent: number = 20
  readonly mode: string = 'self_consumption'
  readonly stormMode: boolean = false
  readonly vehicleReservePercent: number = 0
  readonly exportRule: string = 'battery_ok'
  readonly disallowGridCharging: boolean = false
  readonly tariff: JsonObject = tariff
}

/** The settings that energy commands change. The parameters were checked before. */
export function changeSite({ settings }: EnergySite, command: string, body: JsonObject): SiteSettings {
  const text = (name: string, before: string): string => (typeof body[name] === 'string' ? body[name] : before)
  const number = (name: string, before: number): number => (typeof body[name] === 'number' ? body[name] : before)
  switch (command) {
    case 'backup':
      return { ...settings, backupReservePercent: number('backup_reserve_percent', settings.backupReservePercent) }
    case 'operation':
      return { ...settings, mode: text('default_real_mode', settings.mode) }
    case 'storm_mode':
      return { ...settings, stormMode: body['enabled'] === true }
    case 'off_grid_vehicle_charging_reserve':
      return {
        ...settings,
        vehicleReservePercent: number('off_grid_vehicle_charging_reserve_percent', settings.vehicleReservePercent),
      }
    case 'grid_import_export': {
      const disallowed = body['disallow_charge_from_grid_with_solar_installed']
      return {
        ...settings,
        exportRule: text('customer_preferred_export_rule', settings.exportRule),
        disallowGridCharging: typeof disallowed === 'boolean' ? disallowed : settings.disallowGridCharging,
      }
    }
    case 'time_of_use_settings': {
      const sent = Object(body['tou_settings'])['tariff_content_v2']
      return typeof sent === 'object' && sent !== null ? { ...settings, tariff: sent } : settings
    }
    default:
      return settings
  }
}

/** The flows of power at one moment, in watts. */
interface Flows {
  readonly solar: number
  readonly load: number
  /** Out of the battery. Negative into it. */
  readonly battery: number
  /** Out of the grid. Negative into it. */
  readonly grid: number
  readonly car: number
}

const capacityWh = 27_000

function flowsAt({ index }: EnergySite, now: number): Flows {
  const hour = (now % dayMs) / hourMs
  const solar = Math.round(Math.max(0, Math.sin(((hour - 6) / 12) * Math.PI)) * (5_200 + 300 * (index % 4)))
  const car = hour >= 1 && hour < 4 ? 7_300 : 0
  const load = 650 + Math.round(350 * (1 + Math.sin((hour / 24) * 6 * Math.PI))) + car
  const surplus = solar - (load - car)
  // The car charges from the grid at night. The battery follows the sun.
  const battery = surplus > 0 ? -Math.min(surplus, 4_000) : Math.min(-surplus, 900)
  return { solar, load, battery, grid: load - solar - battery, car }
}

/** Fullest in the evening, emptiest in the morning. */
function percentAt(now: number): number {
  const hour = (now % dayMs) / hourMs
  return Number((60 - 30 * Math.sin(((hour - 0.5) / 12) * Math.PI)).toFixed(2))
}

/** `live_status`: what the site does now. */
export function liveStatus(site: EnergySite, now: number): JsonObject {
  const { solar, load, battery, grid, car } = flowsAt(site, now)
  const percent = percentAt(now)
  return {
    solar_power: solar,
    energy_left: Math.round((capacityWh * percent) / 100),
    total_pack_energy: capacityWh,
    percentage_charged: percent,
    backup_capable: true,
    battery_power: battery,
    load_power: load,
    grid_status: 'Active',
    grid_services_active: false,
    grid_power: grid,
    grid_services_power: 0,
    generator_power: 0,
    island_status: 'on_grid',
    storm_mode_active: false,
    timestamp: new Date(now).toISOString(),
    wall_connectors: [
      {
        din: `1457768-02-G--SANDBOX${site.index}`,
        wall_connector_state: car > 0 ? 1 : 2,
        wall_connector_fault_state: 2,
        wall_connector_power: car,
        ocpp_status: null,
        powershare_session_state: 1,
      },
    ],
  }
}

/** `site_info`: the parts of the site, and its settings. */
export function siteInfo({ id, index, settings }: EnergySite): JsonObject {
  return {
    id: `STE2026-${id}`,
    energy_site_id: Number(id),
    site_name: `Site ${index + 1}`,
    asset_site_id: `asset-${id}`,
    site_number: `STE2026-${id}`,
    gateway_id: `1232100-00-J--SANDBOX${index}`,
    backup_reserve_percent: settings.backupReservePercent,
    vpp_backup_reserve_percent: settings.backupReservePercent,
    off_grid_vehicle_charging_reserve_percent: settings.vehicleReservePercent,
    default_real_mode: settings.mode,
    installation_date: '2024-05-02T10:00:00+00:00',
    installation_time_zone: timeZone,
    time_zone_offset: 0,
    version: '26.34.1 0d5c1f2e',
    battery_count: 2,
    nameplate_power: 10_000,
    nameplate_energy: capacityWh,
    max_site_meter_power_ac: 1_000_000_000,
    min_site_meter_power_ac: -1_000_000_000,
    tariff_id: settings.tariff['code'] ?? null,
    tariff_content: settings.tariff,
    tariff_content_v2: settings.tariff,
    utility: settings.tariff['utility'] ?? null,
    rate_plan_manager_supported: true,
    rate_plan_manager_no_pricing_constraint: true,
    net_meter_mode: settings.exportRule,
    default_island_mode: 'on_grid',
    island_status: 'on_grid',
    grid_status: 'Active',
    country: 'DE',
    currency: settings.tariff['currency'] ?? null,
    geolocation: { latitude: 51.313, longitude: 9.481, source: 'Site Address Preference' },
    address: { address_line1: 'Teststrasse 1', city: 'Teststadt', state: 'HE', zip: '34117', country: 'DE' },
    user_settings: {
      storm_mode_enabled: settings.stormMode,
      onboarding_settings_set: true,
      vpp_tour_enabled: true,
      sync_grid_alert_enabled: true,
      breaker_alert_enabled: true,
      go_off_grid_test_banner_enabled: false,
    },
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
      flex_energy_request_capable: false,
      car_charging_data_supported: true,
      off_grid_vehicle_charging_reserve_supported: true,
      vehicle_charging_performance_view_enabled: true,
      vehicle_charging_solar_offset_view_enabled: true,
      battery_solar_offset_view_enabled: true,
      set_islanding_mode_enabled: true,
      wifi_commissioning_enabled: true,
      backup_time_remaining_enabled: true,
      system_alerts_enabled: true,
      grid_services_enabled: false,
      configurable: true,
      net_meter_mode: settings.exportRule,
      customer_preferred_export_rule: settings.exportRule,
      disallow_charge_from_grid_with_solar_installed: settings.disallowGridCharging,
      gateways: [{ device_id: `gateway-${id}`, din: `1232100-00-J--SANDBOX${index}`, is_active: true }],
      batteries: [0, 1].map((battery) => ({
        device_id: `battery-${id}-${battery}`,
        din: `2012170-25-E--SANDBOX${index}${battery}`,
        nameplate_energy: capacityWh / 2,
        nameplate_max_charge_power: 5_000,
        nameplate_max_discharge_power: 5_000,
      })),
      inverters: [{ device_id: `inverter-${id}`, din: `1538100-00-F--SANDBOX${index}`, is_active: true }],
      wall_connectors: [{ device_id: `wall-${id}`, din: `1457768-02-G--SANDBOX${index}`, is_active: true }],
    },
  }
}

/** The energy of a time in watt hours, in the series of the history. */
function energyOf(site: EnergySite, from: number, hours: number): JsonObject {
  const { solar, load, battery, grid, car } = flowsAt(site, from)
  const wh = (watts: number): number => Math.round(watts * hours)
  const discharge = wh(Math.max(0, battery))
  const charge = wh(Math.max(0, -battery))
  const imported = wh(Math.max(0, grid))
  const exported = wh(Math.max(0, -grid))
  const used = wh(load)
  const generated = wh(solar)
  const consumedFromGrid = Math.min(imported, used)
  const consumedFromBattery = Math.min(discharge, used - consumedFromGrid)
  return {
    solar_energy_exported: generated,
    generator_energy_exported: 0,
    grid_energy_imported: imported,
    grid_services_energy_imported: 0,
    grid_services_energy_exported: 0,
    grid_energy_exported_from_solar: exported,
    grid_energy_exported_from_generator: 0,
    grid_energy_exported_from_battery: 0,
    battery_energy_exported: discharge,
    battery_energy_imported_from_grid: 0,
    battery_energy_imported_from_solar: charge,
    battery_energy_imported_from_generator: 0,
    consumer_energy_imported_from_grid: consumedFromGrid,
    consumer_energy_imported_from_solar: used - consumedFromGrid - consumedFromBattery,
    consumer_energy_imported_from_battery: consumedFromBattery,
    consumer_energy_imported_from_generator: 0,
    total_home_usage: used,
    total_battery_charge: charge,
    total_battery_discharge: discharge,
    total_solar_generation: generated,
    total_grid_energy_exported: exported,
    total_vehicle_charge: wh(car),
  }
}

/** `calendar_history`: the energy of the day so far, hour by hour, or the outages, of which there are none. */
export function calendarHistory(site: EnergySite, now: number, kind: string, period: string): JsonObject {
  if (kind === 'backup') return { period, events: [], total_events: 0 }
  const midnight = Math.floor(now / dayMs) * dayMs
  const hours = Math.floor((now - midnight) / hourMs) + 1
  const series = Array.from({ length: hours }, (_, hour) => {
    const at = midnight + hour * hourMs
    return { timestamp: new Date(at).toISOString(), ...energyOf(site, at + hourMs / 2, 1) }
  })
  return { serial_number: `STE2026-${site.id}`, period, installation_time_zone: timeZone, time_series: series }
}

/** `telemetry_history`: the times in which a car charged. */
export function telemetryHistory(now: number): JsonObject {
  const charges = Array.from({ length: 5 }, (_, back) => {
    const start = Math.floor(now / dayMs) * dayMs - (back + 1) * dayMs + hourMs
    return {
      charge_start_time: { seconds: start / 1_000 },
      charge_duration: { seconds: 3 * 3_600 },
      energy_added_wh: 21_900,
    }
  })
  return { charge_history: charges }
}

/** What the site did today, in the members of a message of the topic `energy_totals`. */
export function energyTotals(site: EnergySite, now: number): JsonObject {
  const totals: Record<string, number> = {}
  const { time_series: series } = calendarHistory(site, now, 'energy', 'day')
  for (const entry of Array.isArray(series) ? series : []) {
    for (const [name, wh] of Object.entries(Object(entry))) {
      if (typeof wh === 'number') totals[name] = (totals[name] ?? 0) + wh
    }
  }
  return totals
}
