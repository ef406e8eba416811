import type { Context } from 'hono'
import { type SSEStreamingApi, streamSSE } from 'hono/streaming'
import { pause, systemClock } from '../base/clock.ts'
import type { Feed, FeedFilter, FeedItem } from './feed.ts'

/** The time between comments on a stream, in milliseconds. A proxy may close a stream that is silent for a minute. */
const aliveMs = 15_000

/** A stream must not delay the stop of its server, because nobody takes messages until the next one starts. It ends within this time in milliseconds. */
const untilNoticedMs = 250

/** The most items in one event of the stream: readers limit the size of an event. */
const atOnce = 50

/** A reader that does not take what was sent to it for this long is too slow, in milliseconds. */
const slowMs = 10_000

export interface FeedStreamOptions {
  readonly feed: Feed
  readonly which: FeedFilter
  readonly since: string | undefined
  /** An item as JSON text, made once for all readers. */
  readonly textOf: (item: FeedItem) => string
  readonly isStopping: () => boolean
  /** Begins what lasts as long as the reader does, and returns what ends it. */
  readonly whileRead: () => () => void
  readonly onSlow: () => void
}

/**
 * Sends the feed to one more reader as Server-Sent Events: until the reader goes, the receiver stops, or the reader takes too long to read. A slow
 * reader gets `ended: 'slow'` in its last event, and can go on with the cursor that it has. `undefined`: there are too many readers.
 */
export function streamFeed(c: Context, options: FeedStreamOptions): Response | undefined {
  const { feed, which, since, isStopping, whileRead, onSlow } = options
  const leave = feed.enter()
  if (leave === undefined) return undefined
  return streamSSE(c, async (stream) => {
    const ended = new AbortController()
    stream.onAbort(() => ended.abort())
    const alive = setInterval(() => void stream.write(': alive\n\n'), aliveMs)
    const watching = setInterval(() => isStopping() && ended.abort(), untilNoticedMs)
    const stop = whileRead()
    try {
      for await (const { items, missed, cursor } of feed.read(which, since, ended.signal)) {
        for (const event of eventsOf(items.map(options.textOf), missed, cursor)) {
          if (ended.signal.aborted || (await isTaken(stream, event, ended.signal))) continue
          onSlow()
          ended.abort()
          // It stays in the connection until the reader reads on. Nobody waits for that.
          void stream.write('data: {"items":[],"ended":"slow"}\n\n')
        }
      }
    } finally {
      clearInterval(alive)
      clearInterval(watching)
      stop()
      leave()
    }
  })
}

/** Events of the stream for a batch. The cursor belongs to the whole batch, so only the last event has it. */
function* eventsOf(items: readonly string[], missed: number, cursor: string): Generator<string> {
  let at = 0
  for (; at + atOnce < items.length; at += atOnce)
    yield `data: {"items":[${items.slice(at, at + atOnce).join(',')}]}\n\n`
  yield `data: {"items":[${items.slice(at).join(',')}],"missed":${missed}}\nid: ${cursor}\n\n`
}

/** Resolves to whether the reader took it in time, or is gone. */
async function isTaken(stream: SSEStreamingApi, event: string, signal: AbortSignal): Promise<boolean> {
  const done = new AbortController()
  const end = (): void => done.abort()
  signal.addEventListener('abort', end, { once: true })
  const late = pause(systemClock, slowMs, done.signal).then(
    () => false,
    () => true,
  )
  try {
    return await Promise.race([stream.write(event).then(() => true), late])
  } finally {
    signal.removeEventListener('abort', end)
    done.abort()
  }
}
