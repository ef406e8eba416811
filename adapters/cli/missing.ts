import * as z from 'zod/mini'
import { defined } from '../../src/base/options.ts'
import { type HeardVehicle, type MissingVehicle, missingReasons } from '../../src/observe/missing.ts'
import type { Client } from '../../src/service/client/client.ts'
import type { Hearing } from '../../src/service/client/missing.ts'
import type { Operator } from './operator.ts'
import { inCommandLineTerms } from './service.ts'
import { inShell, table, timeOf } from './terminal.ts'

const nullable = <T>(schema: z.ZodMiniType<T>): z.ZodMiniType<T | undefined> =>
  z.pipe(
    z.nullish(schema),
    z.transform((value) => value ?? undefined),
  )
const date: z.ZodMiniType<Date> = z.pipe(
  z.string(),
  z.transform((text) => new Date(text)),
)
const heard: z.ZodMiniType<HeardVehicle> = z.looseObject({
  vin: z.string(),
  seenAt: nullable(date),
  online: nullable(z.boolean()),
  state: nullable(z.string()),
})
const page = z.looseObject({ vehicles: z.array(heard), next: z.nullable(z.string()) })

const reported = z.looseObject({
  at: nullable(date),
  error: z.optional(z.string()),
  vehicles: z.array(
    z.looseObject({
      vin: z.string(),
      reason: z.string(),
      hint: z.string(),
      heardAt: nullable(date),
      customer: nullable(z.looseObject({ id: z.string(), ref: z.nullable(z.string()) })),
    }),
  ),
})

/** What a running receiver has heard, page by page. */
export function hearing(operator: Operator): Hearing {
  async function* list(): AsyncGenerator<HeardVehicle> {
    for (let after: string | undefined, isFirst = true; isFirst || after !== undefined; isFirst = false) {
      const query = new URLSearchParams({ limit: '1000', ...defined({ after }) })
      const { vehicles, next } = page.parse(await operator.ask('GET', `/vehicles?${query}`))
      yield* vehicles
      after = next ?? undefined
    }
  }
  return { vehicles: { list } }
}

/** Asks the service, or without its key the receiver, whose `operatorRoutes` may have been given `client.missing(receiver)`. */
export async function missingVehicles(
  operator: Operator,
  client: Client | undefined,
  silentMs: number,
): Promise<readonly MissingVehicle[]> {
  if (client === undefined) return reported.parse(await operator.ask('GET', '/missing')).vehicles
  const found: MissingVehicle[] = []
  for await (const vehicle of client.missing(hearing(operator), { silentMs })) {
    found.push(vehicle)
    if (process.stderr.isTTY) process.stderr.write(`\r${found.length} vehicles so far `)
  }
  if (process.stderr.isTTY) process.stderr.write('\r\x1b[K')
  return inOrder(found)
}

/** Vehicles that need attention come before vehicles at rest. */
export const inOrder = (vehicles: readonly MissingVehicle[]): readonly MissingVehicle[] =>
  vehicles.toSorted((one, other) => rank(one) - rank(other) || one.vin.localeCompare(other.vin))

/** Reasons that the service has made up since come first: nobody knows what they mean. */
const rank = ({ reason }: MissingVehicle): number => (missingReasons as readonly string[]).indexOf(reason)

const commands: Readonly<Record<string, (vin: string) => string>> = {
  webhook_not_found: () => 'fleethook webhook set --url <url>',
  webhook_paused: () => 'Run fleethook webhook set without --paused.',
  config_not_found: (vin) => `It streams nothing: fleethook config patch ${inShell(vin)} BatteryLevel=60`,
  business_product_not_consented: (vin) =>
    `No customer shares it any longer. Ask the customer, or erase what you keep of it: fleethook forget ${inShell(vin)}`,
}

/** What to do about the vehicles of one reason, as a command where there is one. */
export const todoFor = ({ vin, reason, hint }: MissingVehicle): string =>
  commands[reason]?.(vin) ?? inCommandLineTerms(hint)

/** A table, and below it what to do for each reason. */
export function missingTable(vehicles: readonly MissingVehicle[]): string {
  if (vehicles.length === 0) return 'Every shared vehicle is heard.'
  const rows = vehicles.map(({ vin, reason, heardAt, customer }) => [
    vin,
    reason,
    heardAt === undefined ? 'never' : timeOf(heardAt.toISOString()),
    customer?.ref ?? customer?.id ?? '',
  ])
  const firsts = [...Map.groupBy(vehicles, ({ reason }) => reason).values()].flatMap(([first]) => first ?? [])
  const todos = firsts.map((first) => `${first.reason}: ${todoFor(first)}`)
  return [table(['VIN', 'REASON', 'HEARD (UTC)', 'CUSTOMER'], rows), ...todos].join('\n\n')
}
