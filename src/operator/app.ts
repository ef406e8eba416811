import { type Context, Hono } from 'hono'
import { streamSSE } from 'hono/streaming'
import * as z from 'zod/mini'
import { FleethookError } from '../base/errors.ts'
import type { FleetEvent } from '../events/event.ts'
import type { MalformedBody } from '../events/malformed.ts'
import { summarize } from '../events/summarize.ts'
import type { DeadMessage, MessageRecord } from '../inbox/dead-letters.ts'
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

function vinOf(event: FleetEvent | MalformedBody): string | undefined {
  return event.topic === 'malformed' ? undefined : event.vin
}

const time = z.pipe(
  z.iso.datetime({ offset: true }),
  z.transform((text) => new Date(text)),
)
const filter = z.strictObject({
  vin: z.optional(z.string()),
  topic: z.optional(z.string()),
  from: z.optional(time),
  to: z.optional(time),
})
const page = z.extend(filter, {
  limit: z.optional(z.coerce.number().check(z.int(), z.gte(1), z.lte(1000))),
  after: z.optional(z.string()),
})
const listing = z.extend(filter, {
  limit: z.optional(z.coerce.number().check(z.int(), z.gte(1), z.lte(1000))),
  before: z.optional(z.string()),
})
const feedQuery = z.strictObject({
  vin: z.optional(z.string()),
  topic: z.optional(z.string()),
  errors: z.optional(z.stringbool()),
  since: z.optional(z.string()),
})
const change = z.extend(filter, { dryRun: z.optional(z.boolean()) })
const range = z.extend(change, { from: time, to: time })

/** A stream without news says that it is alive this often, in milliseconds: a proxy may end one that is silent for a minute. */
const aliveMs = 15_000

/** The items of one event of the stream: a reader limits the size of an event. */
const atOnce = 50

/** The default length of a page. */
const usualLimit = 100

/** The operator's requests as JSON over HTTP. It does not check a secret. Guard it wherever you mount it. */
export function createOperatorApp(operator: OperatorApi): Hono {
  const { deadLetters } = operator
  const app = new Hono()

  app.get('/dead', async (c) => {
    const { limit = usualLimit, ...which } = read(page, c.req.query())
    const found = await deadLetters.list({ ...which, limit })
    const last = found.at(-1)
    return c.json({
      letters: found.map(summaryOf),
      // A full page can have another one after it.
      next: found.length === limit && last !== undefined ? last.id : null,
    })
  })

  app.post('/dead/replay', async (c) => c.json({ messages: await deadLetters.replay(read(change, await bodyOf(c))) }))
  app.post('/dead/discard', async (c) => c.json({ messages: await deadLetters.discard(read(change, await bodyOf(c))) }))

  app.get('/dead/:id', async (c) => {
    const letter = await deadLetters.get(c.req.param('id'))
    return letter === undefined ? c.json(unknownLetter, 404) : c.json(letterOf(letter))
  })

  app.post('/dead/:id/replay', async (c) => c.json({ messages: await deadLetters.replay(c.req.param('id')) }))
  app.post('/dead/:id/discard', async (c) => c.json({ messages: await deadLetters.discard(c.req.param('id')) }))
  app.post('/replay', async (c) => c.json({ messages: await operator.replay(read(range, await bodyOf(c))) }))

  app.get('/messages', async (c) => {
    const { limit = usualLimit, ...which } = read(listing, c.req.query())
    const found = await operator.messages.list({ ...which, limit })
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

  const { stats, observe } = operator
  if (stats !== undefined) app.get('/stats', (c) => c.json(stats()))
  if (observe !== undefined) {
    const feed = new Feed(observe)
    app.get('/feed', (c) => {
      const { since = c.req.header('last-event-id'), ...which } = read(feedQuery, c.req.query())
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

const unknownMessage = { error: 'message_unknown', text: 'The inbox has no message with this id.' }

const unknownLetter = { error: 'dead_letter_unknown', text: 'There is no dead letter with this id.' }

async function bodyOf(c: Context): Promise<unknown> {
  try {
    return await c.req.json()
  } catch {
    throw new FleethookError('option_invalid', 'The request is not JSON.')
  }
}

function read<Schema extends z.ZodMiniType>(schema: Schema, given: unknown): z.output<Schema> {
  const { data, error } = schema.safeParse(given)
  if (error === undefined) return data
  const [issue] = error.issues
  throw new FleethookError(
    'option_invalid',
    `The request is invalid: ${issue?.path.join('.') ?? ''} ${issue?.message ?? ''}.`,
  )
}
