import { type Context, Hono } from 'hono'
import { streamSSE } from 'hono/streaming'
import { FleethookError } from '../base/errors.ts'
import { checkOptions, oneOf, required, type Rule, type Rules, trueOrFalse, wholeNumber } from '../base/options.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import { summarize } from '../events/summarize.ts'
import type { DeadMessage, KnownVehicle, KnownVehicles, MessageRecord } from '../inbox/dead-letters.ts'
import type { OperatorApi } from '../inbox/observer.ts'
import { Feed, type FeedItem } from './feed.ts'

/** A dead letter in a list, without its payload. Times are ISO 8601 in UTC. */
export interface LetterSummary {
  /** The delivery's id. */
  readonly id: string
  readonly vin: string | null
  readonly topic: string
  readonly receivedAt: string
  readonly diedAt: string
  readonly attempts: number
  /** The last error of the handler. It can quote the payload. */
  readonly error: string
}

/** A dead letter with its event. */
export interface Letter extends LetterSummary {
  readonly event: unknown
}

function summaryOf({ id, event, error, attempts, diedAt }: DeadMessage): LetterSummary {
  return {
    id,
    vin: vinOf(event) ?? null,
    topic: event.topic,
    receivedAt: event.receivedAt.toISOString(),
    diedAt: diedAt.toISOString(),
    attempts,
    error,
  }
}

function letterOf(message: DeadMessage): Letter {
  return { ...summaryOf(message), event: whole(message.event) }
}

/** The id of an event is a getter on its prototype, so a copy by spreading does not have it. */
function whole(event: FleetEvent | MalformedBody): object {
  return 'id' in event ? { ...event, id: event.id } : event
}

/** A message that the inbox keeps, as JSON. */
function recordOf({ event, ...record }: MessageRecord): object {
  return { ...record, ...lineOf(event, event.receivedAt), event: whole(event) }
}

/** What `summarize` says of an event. */
function lineOf(event: FleetEvent | MalformedBody, at: Date): { readonly line?: string } {
  return event.topic === 'malformed' ? {} : { line: summarize(event, at) }
}

/** An item of the feed as JSON: `line` is what `summarize` says of its event. */
function itemOf({ atMs, ...item }: FeedItem): object {
  const at = new Date(atMs)
  const event = 'event' in item ? item.event : undefined
  if (event === undefined) return { at, ...item }
  return { at, ...item, event: whole(event), ...lineOf(event, at) }
}

/** A vehicle in a list, without its values. Times are ISO 8601 in UTC. */
export interface VehicleSummary {
  readonly vin: string
  /** `null`: no message said so. */
  readonly online: boolean | null
  /** The last value of a `state` message. */
  readonly state: string | null
  /** No message of this vehicle may be missing since it was heard that it is online or not. */
  readonly isOnlineCertain: boolean
  /** When its newest message was received. */
  readonly seenAt: string | null
  /** The number of fields that were heard. */
  readonly fields: number
}

/** The newest state of a vehicle. */
export interface VehicleReport extends Omit<VehicleSummary, 'fields'> {
  readonly fields: { readonly [field: string]: FieldReport }
}

/** The newest value of a field. */
export interface FieldReport {
  readonly value: unknown
  /** When the vehicle sent it. */
  readonly at: string
  readonly ageMs: number
  /** No message of this vehicle may be missing since. */
  readonly isCertain: boolean
  /** Since when the vehicle reports no value any more. */
  readonly invalidSince?: string
}

function vehicleSummaryOf({ vin, online, state, isOnlineCertain, seenAt, fields }: KnownVehicle): VehicleSummary {
  return {
    ...{ vin, online: online ?? null, state: state ?? null, isOnlineCertain },
    ...{ seenAt: seenAt?.toISOString() ?? null, fields: fields.length },
  }
}

function vehicleReportOf(vehicle: KnownVehicle): VehicleReport {
  const fields = vehicle.fields.toSorted().map((field): [string, FieldReport] => {
    const invalidSince = vehicle.invalidSince(field)
    const report = {
      ...{ value: vehicle.value(field), at: vehicle.at(field)?.toISOString() ?? '' },
      ...{ ageMs: vehicle.ageMs(field) ?? 0, isCertain: vehicle.isCertain(field) },
    }
    return [field, invalidSince === undefined ? report : { ...report, invalidSince: invalidSince.toISOString() }]
  })
  return { ...vehicleSummaryOf(vehicle), fields: Object.fromEntries(fields) }
}

function vinOf(event: FleetEvent | MalformedBody): string | undefined {
  return event.topic === 'malformed' ? undefined : event.vin
}

/** A selection as a request writes it: in the query, or in the body as JSON. */
interface Selected {
  readonly vin?: string
  readonly topic?: string
  readonly from?: string
  readonly to?: string
}

const text: Rule = { must: 'must be text', accepts: (value) => typeof value === 'string' }
const time: Rule = {
  must: 'must be a time in ISO 8601 with its zone',
  accepts: (value) =>
    typeof value === 'string' &&
    /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/.test(value) &&
    !Number.isNaN(Date.parse(value)),
}
const filterRules: Rules<Selected> = { vin: text, topic: text, from: time, to: time }
const pageRules: Rules<Selected & { limit?: number; after?: string }> = {
  ...filterRules,
  limit: wholeNumber(1, 1000),
  after: text,
}
const vehiclesRules: Rules<{ limit?: number; after?: string }> = { limit: pageRules.limit, after: text }
const listingRules: Rules<Selected & { limit?: number; before?: string }> = {
  ...filterRules,
  limit: wholeNumber(1, 1000),
  before: text,
}
const feedRules: Rules<{ vin?: string; topic?: string; errors?: 'true' | 'false'; since?: string }> = {
  ...{ vin: text, topic: text, since: text },
  errors: oneOf('true', 'false'),
}
const changeRules: Rules<Selected & { dryRun?: boolean }> = { ...filterRules, dryRun: trueOrFalse }
const rangeRules: Rules<Selected & { from: string; to: string; dryRun?: boolean }> = {
  ...changeRules,
  from: required(time),
  to: required(time),
}

/** A stream without news says that it is alive this often, in milliseconds: a proxy may end one that is silent for a minute. */
const aliveMs = 15_000

/** The items of one event of the stream: a reader limits the size of an event. */
const atOnce = 50

/** The default length of a page. */
const usualLimit = 100

/**
 * The operator's requests as JSON over HTTP, and the feed as a stream. It does not check a secret. Guard it wherever you mount it.
 */
export function createOperatorApp(
  operator: OperatorApi,
  feed: Feed | undefined = operator.observe && new Feed(operator.observe),
): Hono {
  const { deadLetters } = operator
  const app = new Hono()

  app.get('/dead', async (c) => {
    const { limit = usualLimit, ...which } = read(queryOf(c), pageRules)
    const found = await deadLetters.list({ ...dated(which), limit })
    const last = found.at(-1)
    return c.json({
      letters: found.map(summaryOf),
      // A full page can have another one after it.
      next: found.length === limit && last !== undefined ? last.id : null,
    })
  })

  app.post('/dead/replay', async (c) =>
    c.json({ messages: await deadLetters.replay(dated(read(await bodyOf(c), changeRules))) }),
  )
  app.post('/dead/discard', async (c) =>
    c.json({ messages: await deadLetters.discard(dated(read(await bodyOf(c), changeRules))) }),
  )

  app.get('/dead/:id', async (c) => {
    const letter = await deadLetters.get(c.req.param('id'))
    return letter === undefined ? c.json(unknownLetter, 404) : c.json(letterOf(letter))
  })

  app.post('/dead/:id/replay', async (c) => c.json({ messages: await deadLetters.replay(c.req.param('id')) }))
  app.post('/dead/:id/discard', async (c) => c.json({ messages: await deadLetters.discard(c.req.param('id')) }))
  app.post('/replay', async (c) => {
    const { from, to, ...which } = read(await bodyOf(c), rangeRules)
    return c.json({ messages: await operator.replay({ ...which, from: new Date(from), to: new Date(to) }) })
  })

  app.get('/vehicles', async (c) => {
    const query = c.req.query()
    const { limit = usualLimit, after } = read(
      'limit' in query ? { ...query, limit: Number(query['limit']) } : query,
      vehiclesRules,
    )
    const found = await vehiclesOf(operator).list({ after, limit })
    const last = found.at(-1)
    return c.json({
      vehicles: found.map(vehicleSummaryOf),
      next: found.length === limit && last !== undefined ? last.vin : null,
    })
  })

  app.get('/vehicles/:vin', async (c) => {
    const vehicle = await vehiclesOf(operator).get(c.req.param('vin'))
    return vehicle === undefined ? c.json(unknownVehicle, 404) : c.json(vehicleReportOf(vehicle))
  })

  app.get('/messages', async (c) => {
    const { limit = usualLimit, ...which } = read(queryOf(c), listingRules)
    const found = await operator.messages.list({ ...dated(which), limit })
    const last = found.at(-1)
    return c.json({
      messages: found.map(recordOf),
      next: found.length === limit && last !== undefined ? last.id : null,
    })
  })

  app.get('/messages/:id', async (c) => {
    const found = await operator.messages.get(c.req.param('id'))
    return found === undefined ? c.json(unknownMessage, 404) : c.json(recordOf(found))
  })

  const { stats } = operator
  if (stats !== undefined) app.get('/stats', (c) => c.json(stats()))
  if (feed !== undefined) {
    app.get('/feed', (c) => {
      const { since = c.req.header('last-event-id'), errors, ...about } = read(c.req.query(), feedRules)
      const which = { ...about, errors: errors === 'true' }
      return streamSSE(c, async (stream) => {
        const ended = new AbortController()
        stream.onAbort(() => ended.abort())
        const alive = setInterval(() => void stream.write(': alive\n\n'), aliveMs)
        try {
          for await (const { items, missed, cursor } of feed.read(which, since, ended.signal)) {
            // A cursor is for the whole batch, so only its last part has one.
            for (let at = 0; at + atOnce < items.length; at += atOnce)
              await stream.writeSSE({ data: JSON.stringify({ items: items.slice(at, at + atOnce).map(itemOf) }) })
            const last = items.slice(Math.max(0, Math.ceil(items.length / atOnce) - 1) * atOnce).map(itemOf)
            await stream.writeSSE({ id: cursor, data: JSON.stringify({ items: last, missed }) })
          }
        } finally {
          clearInterval(alive)
        }
      })
    })
  }

  app.notFound((c) => c.json({ error: 'path_unknown', text: 'Unknown path.' }, 404))
  app.onError((error, c) => {
    if (!(error instanceof FleethookError))
      return c.json({ error: 'failed', text: `The request failed with ${error.name}.` }, 500)
    return c.json({ error: error.code, text: error.message }, error.code === 'option_invalid' ? 400 : 503)
  })
  return app
}

const unknownVehicle = { error: 'vehicle_unknown', text: 'Nothing was heard of a vehicle with this VIN.' }

function vehiclesOf({ vehicles }: OperatorApi): KnownVehicles {
  if (vehicles !== undefined) return vehicles
  throw new FleethookError('option_invalid', 'This receiver keeps no state of vehicles: its option `vehicles` is off.')
}
const unknownMessage = { error: 'message_unknown', text: 'The inbox has no message with this id.' }

const unknownLetter = { error: 'dead_letter_unknown', text: 'There is no dead letter with this id.' }

function queryOf(c: Context): object {
  const query = c.req.query()
  return 'limit' in query ? { ...query, limit: Number(query['limit']) } : query
}

async function bodyOf(c: Context): Promise<unknown> {
  try {
    return await c.req.json()
  } catch {
    throw new FleethookError('option_invalid', 'The request is not JSON.')
  }
}

function read<Request extends object>(given: unknown, rules: Rules<Request>): Request {
  checkOptions<Request>('the request', given, rules)
  return given
}

function dated<Given extends Selected>(
  given: Given,
): Omit<Given, 'from' | 'to'> & { readonly from: Date | undefined; readonly to: Date | undefined } {
  const { from, to, ...rest } = given
  return { ...rest, from: dateOf(from), to: dateOf(to) }
}

function dateOf(written: string | undefined): Date | undefined {
  return written === undefined ? undefined : new Date(written)
}
