import type { Command } from 'commander'
import prettyMs from 'pretty-ms'
import * as z from 'zod/mini'
import { defined } from '../../src/base/options.ts'
import { escapeControls } from '../../src/events/summarize.ts'
import type { FactReport, FieldReport, OddReport, VehicleReport, VehicleSummary } from '../../src/operator/app.ts'
import { ServiceError } from '../../src/service/client/service-error.ts'
import { isJsonObject } from '../../src/wire/record.ts'
import { environment, time, whole } from './arguments.ts'
import { missingTable, missingVehicles } from './missing.ts'
import { operates } from './operator.ts'
import { clientIn, reportRefusal } from './service.ts'
import { columns, table, timeOf } from './terminal.ts'

const isVehicle = (value: unknown): value is { readonly [member: string]: unknown } =>
  isJsonObject(value) && typeof value['vin'] === 'string'
const listed = z.looseObject({ vehicles: z.array(z.custom<VehicleSummary>(isVehicle)), next: z.nullable(z.string()) })
const report = z.custom<VehicleReport>(
  (value) => isVehicle(value) && isJsonObject(value['fields']) && Array.isArray(value['timers']),
)

const hourMs = 3_600_000

interface Listing {
  readonly missing?: true
  readonly since?: Date
  readonly dotenv: string
  readonly limit: number
  readonly after?: string
}

export function defineVehicles(command: Command): void {
  command
    .description(
      'Lists the vehicles whose newest state the receiver keeps (its part `vehicles`), or shows the newest value of each field of ' +
        'one vehicle, with its age. `uncertain` means that messages of the vehicle may be missing since. `held` is a value that physics ' +
        'forbids and that counts when the next one confirms it; other such values are left out. With --missing, lists the vehicles that ' +
        'customers share and the receiver does not hear, each with the reason; this asks the service.',
    )
    .argument('[vin]', 'show this vehicle')
    .option('--missing', 'list shared vehicles that are asleep, offline, or not heard at all, and why')
    .option('--since <time>', 'with --missing: not heard since this time (default: an hour ago)', time)
    .option('--limit <n>', 'at most this many', whole(1, 1_000), 50)
    .option('--after <vin>', 'the next page: vehicles after this one')
  operates<[string | undefined], Listing>(
    command,
    async ({ operator, print, isJson }, { limit, after, missing, since, dotenv }, vin) => {
      if (missing) {
        if (vin !== undefined) command.error('error: --missing is about all vehicles: leave out the VIN.')
        const silentMs = since === undefined ? hourMs : Math.max(1, Date.now() - since.getTime())
        try {
          const vehicles = await missingVehicles(operator, clientIn(environment(dotenv)), silentMs)
          print({ vehicles }, () => missingTable(vehicles))
        } catch (error) {
          if (!(error instanceof ServiceError)) throw error
          reportRefusal(error, isJson)
          return false
        }
        return true
      }
      if (vin !== undefined) {
        const vehicle = report.parse(await operator.ask('GET', `/vehicles/${encodeURIComponent(vin)}`))
        print(vehicle, () => shown(vehicle))
        return true
      }
      const query = new URLSearchParams({ limit: String(limit), ...defined({ after }) })
      const { vehicles, next } = listed.parse(await operator.ask('GET', `/vehicles?${query}`))
      print({ vehicles, next }, () => page(vehicles, next))
      return true
    },
    'receiver',
  )
}

function page(vehicles: readonly Omit<VehicleSummary, 'location'>[], next: string | null): string {
  if (vehicles.length === 0) return 'There is no state of a vehicle yet.'
  const rows = vehicles.map((vehicle) => [
    vehicle.vin,
    linkOf(vehicle),
    timeOf(vehicle.seenAt),
    String(vehicle.fields),
    [clockOf(vehicle), oddOf(vehicle)].filter(Boolean).join(', '),
  ])
  const text = table(['VIN', 'STATE', 'SEEN (UTC)', 'FIELDS', ''], rows)
  return next === null ? text : `${text}\n\nThere may be more: --after ${escapeControls(next)}`
}

function shown({ fields, odd = [], facts = [], timers, ...vehicle }: VehicleReport): string {
  const about = columns([
    ['vin', vehicle.vin],
    ['state', linkOf(vehicle)],
    ['seen (UTC)', timeOf(vehicle.seenAt)],
    ...(vehicle.clockBehindMs === undefined ? [] : [['clock', clockOf(vehicle)] as const]),
  ])
  const rows = Object.entries(fields).map(([name, value]) => [
    name,
    JSON.stringify(value.value),
    prettyMs(value.ageMs, { compact: true }),
    timeOf(value.since),
    marksOf(value),
  ])
  const waits = timers.map(({ edge, since, dueAt }) => [edge, timeOf(since), timeOf(dueAt)])
  return [
    about,
    ...(rows.length === 0 ? [] : [table(['FIELD', 'VALUE', 'AGE', 'SINCE (UTC)', ''], rows)]),
    ...(facts.length === 0 ? [] : [table(['FACT', 'VALUE', 'SINCE (UTC)', 'NEXT (UTC)'], facts.map(factRow))]),
    ...(odd.length === 0 ? [] : [table(['NOT BELIEVED', 'LEFT OUT', 'HELD', 'SENT (UTC)'], odd.map(oddRow))]),
    ...(waits.length === 0 ? [] : [table(['WAITS FOR', 'SINCE (UTC)', 'DUE (UTC)'], waits)]),
  ].join('\n\n')
}

function linkOf({
  state,
  online,
  isOnlineCertain,
}: Omit<VehicleReport, 'fields' | 'odd' | 'facts' | 'timers' | 'episodes'>): string {
  const said = state ?? (online === null ? '' : online ? 'online' : 'offline')
  return said === '' || isOnlineCertain ? said : `${said}, uncertain`
}

/** A vehicle whose clock was set back needs somebody to look at it. */
const clockOf = ({ clockBehindMs }: Pick<VehicleSummary, 'clockBehindMs'>): string =>
  clockBehindMs === undefined ? '' : `clock behind by ${prettyMs(clockBehindMs, { compact: true })}`

/** What its newest state does not believe. */
const oddOf = ({ leftOut = 0, held = 0 }: Pick<VehicleSummary, 'leftOut' | 'held'>): string =>
  [leftOut === 0 ? '' : `${leftOut} ${leftOut === 1 ? 'value' : 'values'} left out`, held === 0 ? '' : `${held} held`]
    .filter(Boolean)
    .join(', ')

const factRow = ({ name, value, since, nextAt }: FactReport): readonly string[] => [
  name,
  value === null ? '' : JSON.stringify(value),
  since === null ? '' : timeOf(since),
  nextAt === undefined ? '' : timeOf(nextAt),
]

const oddRow = ({ field, leftOut, held, heldAt }: OddReport): readonly string[] => [
  field,
  String(leftOut),
  held === undefined ? '' : JSON.stringify(held),
  heldAt === undefined ? '' : timeOf(heldAt),
]

function marksOf({ isCertain, invalidSince }: FieldReport): string {
  const invalid = invalidSince === undefined ? [] : [`no value since ${timeOf(invalidSince)}`]
  return [...(isCertain ? [] : ['uncertain']), ...invalid].join(', ')
}
