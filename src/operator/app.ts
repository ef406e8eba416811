import { type Context, Hono } from 'hono'
import { resolvedOr, systemClock } from '../base/clock.ts'
import { FleethookError } from '../base/errors.ts'
import { checkOptions, oneOf, required, type Rule, type Rules, trueOrFalse, wholeNumber } from '../base/options.ts'
import type { FleetEvent, Topic } from '../events/event.ts'
import { type MalformedBody, vinOfEvent } from '../events/malformed.ts'
import { summarize } from '../events/summarize.ts'
import { notReady } from '../http/answers.ts'
import type { DeadMessage, KnownVehicle, KnownVehicles, MessageRecord } from '../observe/dead-letters.ts'
import type { MissingWatch } from '../observe/missing.ts'
import type { OperatorApi } from '../observe/observer.ts'
import { shownError } from '../observe/stats.ts'
import { wireTopics } from '../wire/envelope.ts'
import { pageBytes } from '../base/pages.ts'
import { type EpisodeOccurrence, membersOfEpisode } from '../vehicles/edge.ts'
import { hostedBy } from '../receiver/hosted.ts'
import type { Reports } from '../reports/reports.ts'
import { jsonText } from '../wire/json.ts'
import { maxValueDepth, placeOf, withoutDeeper } from '../wire/record.ts'
import { changeEverywhere, failingEverywhere, letterEverywhere, lettersEverywhere, type Unasked } from './everywhere.ts'
import { Feed, type FeedItem, mostReaders } from './feed.ts'
import { streamFeed } from './feed-stream.ts'
import { Samples } from './samples.ts'

/** A dead letter in a list, without its payload. Times are ISO 8601 in UTC. */
export interface LetterSummary {
  /** The branch that has it. Left out: the receiver, or what was asked is a branch. */
  readonly branch?: string | undefined
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
  /** The message as it came, where `event.raw` is written in another way. */
  readonly text?: string | undefined
}

function summaryOf({ id, event, error, attempts, diedAt }: DeadMessage, shows: Shows): LetterSummary {
  return {
    id,
    vin: vinOfEvent(event) ?? null,
    topic: event.topic,
    receivedAt: event.receivedAt.toISOString(),
    diedAt: diedAt.toISOString(),
    attempts,
    error: shownError(error, shows.payloads),
  }
}

interface Shows {
  /** Values, raw messages, and the texts of errors, which can quote them. */
  readonly payloads: boolean
}

const shownLevels = 2 * maxValueDepth

/** A list and the feed show a larger message without its payload, in bytes: a person opens one message, and a list of a thousand must not fill the memory. */
const mostListedBytes = 16_384

/** The names that are shown of a message with more fields. */
const mostNames = 100

/** An event as it is shown: without its payload, or without what is nested too deep. */
function shown(event: FleetEvent | MalformedBody, { payloads }: Shows): unknown {
  if (event.topic === 'malformed') return payloads ? event : { ...event, text: undefined }
  if (payloads || event.topic === 'gap') return withoutDeeper({ ...event }, shownLevels)
  return { ...headOf(event), id: event.id }
}

/** An event without its payload, and without its id: that is a hash of the payload, which takes long for a large one. */
function headOf(event: FleetEvent): object {
  const { topic, vin, createdAt, at, receivedAt, format } = event
  const about = { topic, vin, createdAt, at, receivedAt, format }
  return event.topic === 'data' ? { ...about, fields: Object.keys(event.data).slice(0, mostNames) } : about
}

/** An event in a list. */
function listed(event: FleetEvent | MalformedBody, bytes: number, shows: Shows): unknown {
  return bytes <= mostListedBytes || event.topic === 'malformed' ? shown(event, shows) : headOf(event)
}

function lineOf(event: FleetEvent | MalformedBody, at: Date, { payloads }: Shows): string | undefined {
  return event.topic === 'malformed' || !payloads ? undefined : summarize(event, at)
}

function recordOf({ event, text: _, death, ...record }: MessageRecord, shows: Shows, show: typeof listed): object {
  return {
    ...record,
    line: lineOf(event, event.receivedAt, shows),
    event: show(event, record.bytes, shows),
    death: death && { ...death, error: shownError(death.error, shows.payloads) },
  }
}

/** An item of the feed as JSON. Its `line` is the event as one line of `summarize`. */
function itemOf({ atMs, ...item }: FeedItem, shows: Shows): object {
  const at = new Date(atMs)
  const event = 'event' in item ? item.event : undefined
  const error = item.kind === 'failed' || item.kind === 'dead' ? { error: shownError(item.error, shows.payloads) } : {}
  if (event === undefined) return { at, ...item, ...error }
  return {
    at,
    ...item,
    ...error,
    text: item.kind === 'received' && item.bytes <= mostListedBytes ? textBeside(item, shows) : undefined,
    event: listed(event, ('bytes' in item ? item.bytes : undefined) ?? 0, shows),
    line: lineOf(event, at, shows),
  }
}

/** A message as it came, where its event does not say that already: `raw` has no spaces, rounds long numbers and has each name once. */
function textBeside(
  { event, text }: { readonly event: FleetEvent | MalformedBody; readonly text: string },
  { payloads }: Shows,
): string | undefined {
  if (!payloads || event.topic === 'malformed' || event.raw === null) return undefined
  return jsonText(event.raw) === text ? undefined : text
}

/** A received message as JSON, with its text as it came, whatever its size. */
function receivedOf({ atMs, ...item }: FeedItem, shows: Shows): object {
  if (item.kind !== 'received' || item.event.topic === 'malformed') return itemOf({ atMs, ...item }, shows)
  const { kind, id, event, text, bytes } = item
  const at = new Date(atMs)
  const shown = { at, kind, id, bytes, event: headOf(event), line: lineOf(event, at, shows) }
  return shows.payloads ? { ...shown, text } : shown
}

/** A vehicle in a list, without its values. Times are ISO 8601 in UTC. */
export interface VehicleSummary {
  readonly vin: string
  /** `null`: unknown. */
  readonly online: boolean | null
  /** The last value of a `state` message. */
  readonly state: string | null
  /** Whether no message of this vehicle may be missing since `online` was last reported. */
  readonly isOnlineCertain: boolean
  /** When its newest message was received. */
  readonly seenAt: string | null
  /** Its clock was set back by this much, and its times are corrected by that. Left out: it was not. */
  readonly clockBehindMs?: number | undefined
  /** How many of its values were left out because physics forbids them. Left out: none. */
  readonly leftOut?: number | undefined
  /** How many of its values wait to be confirmed. Left out: none. */
  readonly held?: number | undefined
  /** The number of fields that have a value. */
  readonly fields: number
  /** The last value of `BatteryLevel`, in percent, of `Gear` and of `DetailedChargeState`. `null`: not kept, not known, or hidden. */
  readonly battery: number | null
  readonly gear: string | null
  readonly charge: string | null
  /** The last value of the field `Location`, if it is kept. */
  readonly location: { readonly latitude: number; readonly longitude: number; readonly at: string } | null
}

/** The newest state of a vehicle. */
export interface VehicleReport extends Omit<VehicleSummary, 'fields' | 'location' | 'battery' | 'gear' | 'charge'> {
  readonly fields: { readonly [field: string]: FieldReport }
  /** What was not believed, by field. Left out: nothing. */
  readonly odd?: readonly OddReport[] | undefined
  /** What the business said of it, by `receiver.vehicles.set`. Left out: nothing, or payloads are hidden. */
  readonly facts?: readonly FactReport[] | undefined
  /** What rules with a time wait for, the next one first. Empty when payloads are hidden: a rule says what is true of the vehicle. */
  readonly timers: readonly TimerReport[]
  /** The episodes that last and the last finished episodes, the newest first. Empty when payloads are hidden. */
  readonly episodes: readonly EpisodeReport[]
}

/** A fact of a vehicle. */
export interface FactReport {
  readonly name: string
  /** `null`: there is none now. */
  readonly value: unknown
  /** Since when it is so. `null`: it is planned. */
  readonly since: string | null
  /** When it will be another one. Left out: nothing is planned. */
  readonly nextAt?: string | undefined
}

/** A trip, a charge or another episode of a vehicle, as far as the messages show it that the inbox keeps. */
export interface EpisodeReport {
  /** The name of the episode. */
  readonly name: string
  readonly startedAt: string
  /** `null`: it lasts. */
  readonly endedAt: string | null
  readonly durationMs: number
  /** Measures that are not certain. */
  readonly missing: readonly string[]
  /** Whether messages of it may be missing. */
  readonly acrossGap: boolean
  /** Each measure under its name. */
  readonly measures: { readonly [name: string]: unknown }
}

/** A rule that waits for a time. */
export interface TimerReport {
  /** The name of the edge. */
  readonly edge: string
  readonly since: string
  readonly dueAt: string
}

/** The values of a field that physics forbids. */
export interface OddReport {
  readonly field: string
  readonly leftOut: number
  /** A value that waits to be confirmed. Left out when there is none, or payloads are hidden. */
  readonly held?: unknown
  /** When the vehicle sent it. Left out: there is none. */
  readonly heldAt?: string | undefined
}

/** The newest value of a field. */
export interface FieldReport {
  /** Left out when payloads are hidden. */
  readonly value?: unknown
  /** When the vehicle sent it. */
  readonly at: string
  /** When it became what it is. */
  readonly since: string
  readonly ageMs: number
  /** Whether no message of this vehicle may be missing since then. */
  readonly isCertain: boolean
  /** Since when the vehicle has reported no value. Left out: it reports one. */
  readonly invalidSince?: string | undefined
}

function vehicleHeadOf(
  { vin, online, state, isOnlineCertain, seenAt, clockBehindMs, odd = [] }: KnownVehicle,
  { payloads }: Shows,
): Omit<VehicleReport, 'fields' | 'odd' | 'facts' | 'timers' | 'episodes'> {
  return {
    vin,
    online: (payloads ? online : undefined) ?? null,
    state: (payloads ? state : undefined) ?? null,
    isOnlineCertain,
    seenAt: seenAt?.toISOString() ?? null,
    clockBehindMs,
    leftOut: odd.reduce((sum, { leftOut }) => sum + leftOut, 0) || undefined,
    held: odd.filter(({ held }) => held !== undefined).length || undefined,
  }
}

function vehicleSummaryOf(vehicle: KnownVehicle, shows: Shows): VehicleSummary {
  return {
    ...vehicleHeadOf(vehicle, shows),
    fields: vehicle.fields.length,
    battery: shows.payloads ? numberIn(vehicle, 'BatteryLevel') : null,
    gear: shows.payloads ? textIn(vehicle, 'Gear') : null,
    charge: shows.payloads ? textIn(vehicle, 'DetailedChargeState') : null,
    location: shows.payloads ? locationOf(vehicle) : null,
  }
}

function numberIn(vehicle: KnownVehicle, field: string): number | null {
  const value = vehicle.value(field)
  return typeof value === 'number' ? value : null
}

function textIn(vehicle: KnownVehicle, field: string): string | null {
  const value = vehicle.value(field)
  return typeof value === 'string' ? value : null
}

function locationOf(vehicle: KnownVehicle): VehicleSummary['location'] {
  const [place, at] = [placeOf(vehicle.value('Location')), vehicle.at('Location')]
  return at === undefined || place === undefined ? null : { ...place, at: at.toISOString() }
}

/** How many events are read to find episodes, and how many episodes of each name are shown. */
const mostRead = 2_000
const mostEpisodes = 5

/** An edge of `episode`, known by what it can do: a receiver without one does not contain it. */
interface EpisodeSource {
  readonly name: string
  open(vehicle: KnownVehicle): EpisodeOccurrence | undefined
  in(events: Iterable<FleetEvent>, vehicle: KnownVehicle): readonly EpisodeOccurrence[]
}

const isEpisode = (edge: object): edge is EpisodeSource => 'open' in edge && 'in' in edge

async function episodesOf(operator: OperatorApi, vehicle: KnownVehicle): Promise<readonly EpisodeReport[]> {
  const edges = (operator.vehicles?.edges?.() ?? []).filter(isEpisode)
  if (edges.length === 0) return []
  const events: FleetEvent[] = []
  let read = 0
  for await (const { event } of operator.messages.list({ vin: vehicle.vin })) {
    if (event.topic !== 'malformed') events.push(event)
    if (++read === mostRead) break
  }
  return edges
    .flatMap((edge) => {
      // The state of the vehicle knows more of the newest one than the messages do: its first ones may be gone.
      const open = edge.open(vehicle)
      const over = edge.in(events, vehicle).filter(({ endedAt }) => open === undefined || endedAt <= open.startedAt)
      return [...over.slice(-mostEpisodes), ...(open ? [open] : [])].map((each) => episodeReportOf(edge.name, each))
    })
    .toSorted((one, other) => other.startedAt.localeCompare(one.startedAt))
}

function episodeReportOf(name: string, episode: EpisodeOccurrence): EpisodeReport {
  const { startedAt, endedAt, durationMs, missing, acrossGap } = episode
  const measures = Object.entries(episode).filter(([each]) => !membersOfEpisode.includes(each))
  return {
    name,
    startedAt: startedAt.toISOString(),
    endedAt: episode.lasts ? null : endedAt.toISOString(),
    durationMs,
    missing,
    acrossGap,
    measures: Object.fromEntries(measures),
  }
}

function vehicleReportOf(vehicle: KnownVehicle, episodes: readonly EpisodeReport[], shows: Shows): VehicleReport {
  const fields = vehicle.fields.toSorted().map((field): [string, FieldReport] => {
    const report = {
      value: shows.payloads ? vehicle.value(field) : undefined,
      at: vehicle.at(field)?.toISOString() ?? '',
      since: vehicle.since(field)?.toISOString() ?? '',
      ageMs: vehicle.ageMs(field) ?? 0,
      isCertain: vehicle.isCertain(field),
      invalidSince: vehicle.invalidSince(field)?.toISOString(),
    }
    return [field, report]
  })
  const timers = (shows.payloads ? vehicle.timers : []).map(({ edge, since, dueAt }): TimerReport => ({
    edge,
    since: since.toISOString(),
    dueAt: dueAt.toISOString(),
  }))
  const odd = vehicle.odd?.map(({ field, leftOut, held }): OddReport => ({
    field,
    leftOut,
    held: shows.payloads ? held?.value : undefined,
    heldAt: held?.at.toISOString(),
  }))
  const values = { fields: Object.fromEntries(fields), odd: odd?.length === 0 ? undefined : odd }
  const facts = (shows.payloads ? (vehicle.facts ?? []) : []).map(({ name, value, since, nextAt }): FactReport => ({
    name,
    value: value ?? null,
    since: since?.toISOString() ?? null,
    nextAt: nextAt?.toISOString(),
  }))
  const said = facts.length === 0 ? {} : { facts }
  return { ...vehicleHeadOf(vehicle, shows), ...values, ...said, timers, episodes }
}

/** A selection as a request writes it: in the query, or in the body as JSON. */
interface Selected {
  readonly vin?: string
  readonly topic?: Topic | 'malformed'
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
/** An id as receivers make them. With Postgres, any other text would be an error of the server. */
const idForm = /^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/
const id: Rule = {
  must: 'must be the id of a message',
  accepts: (value) => typeof value === 'string' && idForm.test(value),
}
const topic = oneOf(...wireTopics, 'unknown', 'gap', 'malformed')
const filterRules: Rules<Selected> = { vin: text, topic, from: time, to: time }
const limit = wholeNumber(1, 1000)
const pageRules: Rules<Selected & { limit?: number; after?: string }> = { ...filterRules, limit, after: id }
const vehiclesRules: Rules<{ limit?: number; after?: string }> = { limit, after: text }
const listingRules: Rules<Selected & { limit?: number; after?: string; state?: MessageRecord['state'] }> = {
  ...pageRules,
  state: oneOf('waiting', 'settled', 'dead'),
}
const feedRules: Rules<{
  vin?: string
  topic?: string
  errors?: 'true' | 'false'
  received?: 'true' | 'false'
  since?: string
}> = {
  vin: text,
  topic,
  since: text,
  errors: oneOf('true', 'false'),
  received: oneOf('true', 'false'),
}
const changeRules: Rules<Selected & { dryRun?: boolean }> = { ...filterRules, dryRun: trueOrFalse }
const rangeRules: Rules<Selected & { from: string; to: string; dryRun?: boolean; limit?: number; after?: string }> = {
  ...changeRules,
  limit,
  after: id,
  from: required(time),
  to: required(time),
}

const forgetRules: Rules<{ vin: string; dryRun?: boolean }> = {
  vin: required({ must: 'must be a VIN', accepts: (value) => typeof value === 'string' && value !== '' }),
  dryRun: trueOrFalse,
}

const usualLimit = 100

/** The most messages that one search for a topic or a state reads, because each of them is parsed. */
const mostSearched = 10_000

/** The most bytes of messages or states that one page reads, so that live messages do not wait for it. */
const mostReadBytes = 8 * pageBytes

export interface OperatorAppOptions {
  /** Default: its own feed, if a receiver runs. */
  readonly feed?: Feed | undefined
  /** Default: its own samples, if a receiver runs. */
  readonly samples?: Samples | undefined
  /** `false` hides values, raw messages and the texts of errors. Default `true`. */
  readonly payloads?: boolean
  /** Knows the shared vehicles that are not heard. */
  readonly missing?: MissingWatch | undefined
  /** Default: the receiver's. */
  readonly reports?: Pick<Reports, 'noteSlowReader'> | undefined
}

/** The longest that a request for missing vehicles waits for a look, in milliseconds. */
const lookMs = 5_000

/** What the routes answer from. */
interface Answering {
  readonly operator: OperatorApi
  readonly shows: Shows
  readonly feed: Feed | undefined
  readonly samples: Samples | undefined
  readonly reports: OperatorAppOptions['reports']
}

/** Serves the operator's requests as JSON, and the feed as a stream. It checks no secret, so guard it. */
export function createOperatorApp(operator: OperatorApi, options: OperatorAppOptions = {}): Hono {
  const {
    feed = operator.observe && new Feed(operator.observe),
    samples = operator.stats && new Samples(operator.stats, operator.observe),
    payloads = true,
    missing,
    reports = hostedBy(operator)?.reports,
  } = options
  const answering: Answering = { operator, shows: { payloads }, feed, samples, reports }
  const app = new Hono()

  app.get('/about', async (c) =>
    c.json({
      payloads,
      receiver: feed !== undefined,
      vehicles: operator.vehicles !== undefined,
      ready: operator.readiness?.(),
      branches: (operator.branches?.size ?? 0) === 0 ? undefined : [...(operator.branches?.keys() ?? [])],
    }),
  )

  routeBranches(app, answering)
  routeDeadLetters(app, answering)
  routeChanges(app, answering)
  routeVehicles(app, answering)
  if (missing !== undefined) routeMissing(app, missing)
  routeMessages(app, answering)
  routeFigures(app, answering)
  if (feed !== undefined) routeFeed(app, feed, answering)

  app.notFound((c) => c.json({ error: 'path_unknown', text: 'Unknown path.' }, 404))
  app.onError((error, c) => {
    if (!(error instanceof FleethookError))
      return c.json({ error: 'failed', text: `The request failed with ${error.name}.` }, 500)
    return c.json({ error: error.code, text: error.message }, error.code === 'option_invalid' ? 400 : 503)
  })
  return app
}

function routeBranches(app: Hono, { operator, shows, reports }: Answering): void {
  /** The apps of branches. Each is made when its branch is first seen, and its feed begins then. */
  const branches = new Map<string, Hono>()
  const branchOf = (name: string): Hono | undefined => {
    const branch = operator.branches?.get(name)
    if (branch === undefined) return undefined
    const found = branches.get(name) ?? createOperatorApp(branch, { payloads: shows.payloads, reports })
    branches.set(name, found)
    return found
  }
  for (const name of operator.branches?.keys() ?? []) branchOf(name)

  app.all('/branches/:branch/:what{.+}', (c) => {
    const { branch } = c.req.param()
    const found = branchOf(branch)
    const address = new URL(c.req.url)
    // As it was written: a VIN in it can have a slash.
    const prefix = `/branches/${branch}`
    const at = address.pathname.lastIndexOf(`${prefix}/`)
    if (found === undefined || at === -1) return c.json(unknownBranch(branch, operator.branches), 404)
    address.pathname = address.pathname.slice(at + prefix.length)
    return found.fetch(new Request(address, c.req.raw))
  })
}

function routeDeadLetters(app: Hono, { operator, shows }: Answering): void {
  app.get('/dead', async (c) => {
    const { limit = usualLimit, ...which } = read(queryOf(c), pageRules)
    const page = new Page<LetterSummary>(limit)
    const unasked: Unasked[] = []
    for await (const { branch, letter } of lettersEverywhere(operator, dated(which), unasked)) {
      // The next page begins behind the id of the last one, so all of that id are here.
      if (page.next !== null && page.next !== letter.id) break
      page.add(letter.id, letter.bytes, { ...summaryOf(letter, shows), branch })
    }
    return c.json({ letters: page.items, next: page.next, unasked: unasked.length === 0 ? undefined : unasked })
  })

  app.get('/dead/:id', async (c) => {
    const id = idOf(c)
    const found = id === undefined ? undefined : await letterEverywhere(operator, id)
    if (found === undefined) return c.json(unknownLetter, 404)
    const { branch, letter } = found
    return c.json({
      ...summaryOf(letter, shows),
      branch,
      event: shown(letter.event, shows),
      text: textBeside(letter, shows),
    })
  })

  for (const change of ['replay', 'discard'] as const) {
    app.post(`/dead/${change}`, async (c) =>
      c.json({ messages: await changeEverywhere(operator, change, dated(read(await bodyOf(c), changeRules))) }),
    )
    app.post(`/dead/:id/${change}`, async (c) => {
      const id = idOf(c)
      return c.json({ messages: id === undefined ? 0 : await changeEverywhere(operator, change, id) })
    })
  }
}

/** The replay of messages in a time, and the erasure of a vehicle. */
function routeChanges(app: Hono, { operator }: Answering): void {
  app.post('/replay', async (c) => {
    const { from, to, limit, after, ...which } = read(await bodyOf(c), rangeRules)
    const range = { ...which, from: new Date(from), to: new Date(to) }
    if (limit !== undefined && which.dryRun !== true && operator.replaySome !== undefined)
      return c.json(await operator.replaySome({ ...range, limit, after }))
    if (after === undefined) return c.json({ messages: await operator.replay(range), next: null })
    throw new FleethookError('option_invalid', 'This inbox cannot go on after a message: choose with `from` and `to`.')
  })

  app.post('/forget', async (c) => {
    const { vin, dryRun = false } = read(await bodyOf(c), forgetRules)
    const erased = await operator.forget?.(vin, { dryRun })
    if (erased !== undefined) return c.json(erased)
    throw new FleethookError('inbox_unsupported', 'This inbox cannot erase a vehicle.')
  })
}

function routeVehicles(app: Hono, { operator, shows }: Answering): void {
  app.get('/vehicles', async (c) => {
    const { limit = usualLimit, after } = read(queryOf(c), vehiclesRules)
    const page = new Page<VehicleSummary>(limit)
    for await (const vehicle of vehiclesOf(operator).list({ after }))
      if (page.add(vehicle.vin, 0, vehicleSummaryOf(vehicle, shows))) break
    return c.json({ vehicles: page.items, next: page.next })
  })

  app.get('/vehicles/:vin', async (c) => {
    const vehicle = await vehiclesOf(operator).get(c.req.param('vin'))
    if (vehicle === undefined) return c.json(unknownVehicle, 404)
    return c.json(vehicleReportOf(vehicle, shows.payloads ? await episodesOf(operator, vehicle) : [], shows))
  })
}

function routeMissing(app: Hono, missing: MissingWatch): void {
  app.get('/missing', async (c) => {
    await resolvedOr(missing.look(), systemClock, lookMs)
    const { at = null, vehicles = [], error } = missing.last() ?? {}
    return c.json({ at, vehicles, error })
  })
}

function routeMessages(app: Hono, { operator, shows, feed }: Answering): void {
  app.get('/messages', async (c) => {
    const { limit = usualLimit, topic, state, ...which } = read(queryOf(c), listingRules)
    const page = new Page<object>(limit)
    for await (const message of operator.messages.list(dated(which))) {
      const isAsked =
        (topic === undefined || message.event.topic === topic) && (state === undefined || message.state === state)
      if (page.add(message.id, message.bytes, isAsked ? recordOf(message, shows, listed) : undefined)) break
    }
    return c.json({ messages: page.items, next: page.next })
  })

  app.get('/messages/:id', async (c) => {
    const id = idOf(c)
    const found = id === undefined ? undefined : await operator.messages.get(id)
    if (id === undefined || found === undefined) return c.json(unknownMessage, 404)
    const handlers = operator.handlersOf?.(found.event)
    const happened = feed?.about(id).map((item) => itemOf(item, shows)) ?? []
    const whole = (event: FleetEvent | MalformedBody): unknown => shown(event, shows)
    return c.json({ ...recordOf(found, shows, whole), text: textBeside(found, shows), handlers, happened })
  })
}

/** What a receiver that runs knows of itself. */
function routeFigures(app: Hono, { operator, shows, samples }: Answering): void {
  const { stats, failing, backlog } = operator
  if (backlog !== undefined) app.get('/backlog', async (c) => c.json(await backlog()))
  if (stats !== undefined) app.get('/stats', (c) => c.json(stats()))
  if (failing !== undefined)
    app.get('/failing', async (c) => {
      const found = await failingEverywhere(operator)
      const handlers = found.handlers.map(({ error, ...handler }) => ({
        ...handler,
        error: shownError(error, shows.payloads),
      }))
      return c.json({ ...found, handlers })
    })
  if (samples !== undefined) {
    app.get('/samples', (c) => {
      samples.take()
      return c.json({ stepMs: Samples.stepMs, samples: samples.list() })
    })
  }
}

function routeFeed(app: Hono, feed: Feed, { operator, shows, samples, reports }: Answering): void {
  const [received, others] = [new WeakMap<FeedItem, string>(), new WeakMap<FeedItem, string>()]
  const textOf = (texts: WeakMap<FeedItem, string>, show: typeof itemOf) => (item: FeedItem) => {
    const text = texts.get(item) ?? JSON.stringify(show(item, shows))
    texts.set(item, text)
    return text
  }
  const isStopping = (): boolean => operator.readiness?.().reason === notReady.draining
  const whileRead = (): (() => void) => {
    const sampling = setInterval(() => samples?.take(), Samples.stepMs)
    const stopTiming = samples?.timeAnswers()
    return () => {
      clearInterval(sampling)
      stopTiming?.()
    }
  }
  app.get('/feed', (c) => {
    const { since = c.req.header('last-event-id'), errors, ...about } = read(c.req.query(), feedRules)
    const which = { ...about, errors: errors === 'true', received: about.received === 'true' }
    if (isStopping()) return c.json({ error: 'draining', text: 'The receiver is stopping.' }, 503)
    const stream = streamFeed(c, {
      feed,
      which,
      since,
      isStopping,
      whileRead,
      textOf: which.received ? textOf(received, receivedOf) : textOf(others, itemOf),
      onSlow: () => reports?.noteSlowReader(),
    })
    return stream ?? c.json(tooManyReaders, 503, { 'retry-after': '5' })
  })
}

/** A page of a list: its items as they are shown, and where the next page begins. It ends when it has read or shows as much as one answer may. */
class Page<Item extends object> {
  readonly items: Item[] = []
  next: string | null = null
  readonly #limit: number
  #searched = 0
  #readBytes = 0
  #shownBytes = 0

  constructor(limit: number) {
    this.#limit = limit
  }

  /** Adds what was read, and its item if it belongs to the list. Returns whether the page ends here. */
  add(id: string, bytes: number, item: Item | undefined): boolean {
    this.#searched += 1
    this.#readBytes += bytes
    if (item !== undefined) {
      this.items.push(item)
      this.#shownBytes += jsonText(item).length
    }
    const isFull =
      this.items.length >= this.#limit ||
      this.#searched >= mostSearched ||
      this.#readBytes >= mostReadBytes ||
      this.#shownBytes >= pageBytes
    this.next = isFull ? id : null
    return isFull
  }
}

const tooManyReaders = {
  error: 'feed_full',
  // What to do about `… readers follow the feed already.`: Close pages of the inspector, or `fleethook tail`.
  text: `${mostReaders} readers follow the feed already. Close pages of the inspector, or fleethook tail.`,
}

const unknownVehicle = { error: 'vehicle_unknown', text: 'No message of a vehicle with this VIN was received.' }

function vehiclesOf({ vehicles }: OperatorApi): KnownVehicles {
  if (vehicles !== undefined) return vehicles
  throw new FleethookError('option_invalid', 'This receiver keeps no state of vehicles: it has no part `vehicles`.')
}

const unknownMessage = { error: 'message_unknown', text: 'The inbox has no message with this id.' }

function unknownBranch(
  name: string,
  branches: OperatorApi['branches'],
): { readonly error: string; readonly text: string } {
  const names = [...(branches?.keys() ?? [])]
  const has = names.length === 0 ? 'it has none' : `its branches are ${names.join(', ')}`
  return { error: 'branch_unknown', text: `The receiver has no branch ${name}: ${has}.` }
}

const unknownLetter = { error: 'dead_letter_unknown', text: 'There is no dead letter with this id.' }

/** The id in the path. `undefined`: not an id, so nothing has it. */
function idOf(c: Context): string | undefined {
  const given = c.req.param('id') ?? ''
  return idForm.test(given) ? given : undefined
}

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
  const dateOf = (written: string | undefined): Date | undefined =>
    written === undefined ? undefined : new Date(written)
  return { ...rest, from: dateOf(from), to: dateOf(to) }
}
