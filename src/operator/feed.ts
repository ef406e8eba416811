import { pause, systemClock } from '../base/clock.ts'
import { errorText } from '../core/retry.ts'
import type { FleetEvent } from '../events/event.ts'
import { type MalformedBody, vinOfEvent } from '../events/malformed.ts'
import type { DeadMessage } from '../observe/dead-letters.ts'
import { mentions } from '../inbox/inbox.ts'
import type { ErrorDetails, Observer, RefusedRequest, SettledMessage, TestMessage } from '../observe/observer.ts'
import { jsonText } from '../wire/json.ts'

type About = FleetEvent | MalformedBody

/** The content of an item, by its kind. */
export type FeedContent =
  | {
      readonly kind: 'received'
      readonly id: string
      readonly event: About
      /** The message, as it came. */
      readonly text: string
      readonly bytes: number
    }
  | ({ readonly kind: 'settled'; readonly lagMs: number } & SettledMessage)
  | {
      readonly kind: 'failed'
      readonly id: string | undefined
      readonly event: About | undefined
      /** The size of the message. */
      readonly bytes: number
      readonly attempt: number | undefined
      readonly handler: string | undefined
      /** The name and message of the error. It can quote the payload. */
      readonly error: string
      readonly nextAt: Date | undefined
    }
  | ({ readonly kind: 'dead' } & DeadMessage)
  | ({ readonly kind: 'refused' } & RefusedRequest)
  | { readonly kind: 'gap'; readonly event: About }
  | ({ readonly kind: 'test' } & TestMessage)

export type FeedItem = FeedContent & {
  readonly atMs: number
}

/** An event, or a malformed body, in JSON. Members that its topic does not have are left out, and so are payloads when they are hidden. */
export interface ShownEvent {
  readonly topic: string
  readonly id?: string
  readonly vin?: string
  readonly createdAt?: string
  readonly receivedAt: string
  readonly format?: string | null
  readonly raw?: unknown
  readonly meta?: Readonly<Record<string, unknown>>
  readonly data?: Readonly<Record<string, unknown>>
  readonly undecoded?: Readonly<Record<string, unknown>>
  /** The names of the fields of `data`, when payloads are hidden. */
  readonly fields?: readonly string[]
  readonly [member: string]: unknown
}

/** An item of the feed, in JSON. Times are ISO 8601 in UTC. */
export interface ShownItem {
  readonly kind: 'received' | 'settled' | 'failed' | 'dead' | 'refused' | 'gap' | 'test'
  readonly at: string
  // Only some kinds of items have what follows.
  readonly id?: string
  readonly vin?: string | null
  /** What `summarize` says of the event. */
  readonly line?: string
  readonly event?: ShownEvent
  /** The message as it came, for a reader who asked for received messages only. */
  readonly text?: string
  readonly outcome?: 'handled' | 'duplicate' | 'lost'
  readonly lagMs?: number
  readonly attempt?: number
  readonly attempts?: number
  readonly handler?: string
  readonly error?: string
  readonly nextAt?: string
  readonly status?: number
  readonly hint?: string
  readonly isAuthentic?: boolean
  readonly isTest?: boolean
  readonly vins?: readonly string[]
  readonly messages?: number
  readonly count?: number
  readonly test?: string
  /** The size of the message. The event of a large one has no payload here; `GET /messages/:id` shows it. */
  readonly bytes?: number
  readonly encoding?: string
  readonly headers?: readonly { readonly name: string; readonly length: number }[]
}

/** Which items to read. Left out: every item. */
export interface FeedFilter {
  readonly vin?: string | undefined
  readonly topic?: string | undefined
  /** Only what went wrong: refused requests, failed runs, dead letters, lost messages and gaps. Test messages too. */
  readonly errors?: boolean | undefined
  /** Only messages as they were received. */
  readonly received?: boolean | undefined
}

/** Items in the order in which they happened. */
export interface FeedBatch {
  readonly items: readonly FeedItem[]
  /** The number of items that the feed dropped before this reader got them, whatever its filter. */
  readonly missed: number
  /** Pass it as `since` to continue after this batch. */
  readonly cursor: string
}

interface KeptItem {
  readonly item: FeedItem
  /** Its number among all items of the feed. */
  readonly place: number
  readonly bytes: number
}

/** The number of items of each ring that a reader has read. */
interface FeedPosition {
  readonly ordinary: number
  readonly errors: number
}

/** The limits of one ring: items, and the size of their messages in characters. */
const mostItems = 500
const mostBytes = 1_048_576

/** The size that an item counts beside its message. */
const itemBytes = 256

/** The most readers at a time: each costs a little time for every message. */
export const mostReaders = 20

/** A reader gets a batch at most this often, so that its work has a limit. */
const batchMs = 100

/** Keeps the newest items and drops the oldest. */
class Ring {
  readonly #kept: KeptItem[] = []
  #bytes = 0
  /** The number of items that were ever pushed. */
  count = 0

  push(kept: KeptItem): void {
    this.#kept.push(kept)
    this.#bytes += kept.bytes
    this.count += 1
    while (this.#kept.length > mostItems || (this.#bytes > mostBytes && this.#kept.length > 1))
      this.#bytes -= this.#kept.shift()?.bytes ?? 0
  }

  /** Readers notice nothing: an item keeps its place, and has nothing in it. */
  forget(isAbout: (item: FeedItem) => boolean): void {
    for (const [at, { item, place }] of this.#kept.entries()) {
      if (!isAbout(item)) continue
      const { atMs } = item
      const id = 'id' in item ? item.id : undefined
      this.#kept[at] = {
        item: { kind: 'settled', id: id ?? '', vin: undefined, outcome: 'handled', attempts: 0, lagMs: 0, atMs },
        place,
        bytes: itemBytes,
      }
    }
  }

  after(from: number): readonly KeptItem[] {
    return this.#kept.slice(Math.max(0, from - this.first))
  }

  get first(): number {
    return this.count - this.#kept.length
  }
}

/** Returns a function that begins a use and returns a function that ends it. Runs `start` before the first use, and its result after the last. */
export function whileUsed(start: () => () => void): () => () => void {
  const uses = new Set<symbol>()
  let stop = (): void => {}
  return () => {
    const use = Symbol('use')
    if (uses.size === 0) stop = start()
    uses.add(use)
    return () => {
      if (uses.delete(use) && uses.size === 0) stop()
    }
  }
}

/**
 * What happens in a receiver, for people who look: the newest 500 items, and as many errors, in 1 MiB each. Successful
 * messages are kept only while somebody reads. A reader reads from these rings, so a slow one costs no memory and
 * learns how many items it missed.
 */
export class Feed {
  readonly #now: () => number
  readonly #ordinary = new Ring()
  readonly #errors = new Ring()
  /** Part of each cursor, because a cursor of an earlier process is not valid in this one. */
  #run: string | undefined
  readonly #waiting = new Set<() => void>()
  #places = 0
  #readers = 0
  /** Keeps successful messages too, until the returned function is called. */
  readonly keep: () => () => void

  constructor(observe: (observer: Observer) => () => void, now: () => number = Date.now) {
    this.#now = now
    observe({
      refused: (request) => this.#push({ kind: 'refused', ...request }, true),
      tested: (message) => this.#push({ kind: 'test', ...message }, true),
      failed: (error, details) => this.#push(failed(error, details), true),
      dead: (letter) => this.#push({ kind: 'dead', ...letter }, true),
      gap: (event) => this.#push({ kind: 'gap', event }, true),
      forgotten: (vin) => {
        for (const ring of [this.#ordinary, this.#errors]) ring.forget((item) => isAbout(item, vin))
      },
    })
    this.keep = whileUsed(() =>
      observe({
        received: (messages) => {
          for (const { id, event, text, bytes } of messages)
            this.#push({ kind: 'received', id, event, text, bytes }, false, bytes)
        },
        settled: (message) => {
          const lagMs = Math.max(0, this.#now() - Number.parseInt(message.id.slice(0, 8) + message.id.slice(9, 13), 16))
          this.#push({ kind: 'settled', ...message, lagMs }, message.outcome === 'lost', message.bytes)
        },
      }),
    )
  }

  /** One more reader. Returns what ends it; `undefined`: there are too many. */
  enter(): (() => void) | undefined {
    if (this.#readers >= mostReaders) return undefined
    this.#readers += 1
    return () => void (this.#readers -= 1)
  }

  about(id: string): readonly FeedItem[] {
    return [...this.#ordinary.after(0), ...this.#errors.after(0)]
      .filter(({ item }) => 'id' in item && item.id === id)
      .toSorted((one, other) => one.place - other.place)
      .map(({ item }) => item)
  }

  /** Yields what is kept after the cursor at once, and then new items, in ten batches a second at most. */
  async *read(filter: FeedFilter, since: string | undefined, signal: AbortSignal): AsyncGenerator<FeedBatch> {
    const stop = this.keep()
    try {
      let at = this.#positionOf(since)
      for (let isFirst = true; !signal.aborted; isFirst = false) {
        const batch = this.#batch(filter, at)
        at = { ordinary: this.#ordinary.count, errors: this.#errors.count }
        if (isFirst || batch.items.length > 0 || batch.missed > 0) yield batch
        await pause(systemClock, batchMs, signal).catch(() => {})
        const isNew = at.ordinary !== this.#ordinary.count || at.errors !== this.#errors.count
        if (!isNew && !signal.aborted) await this.#next(signal)
      }
    } finally {
      stop()
    }
  }

  #batch({ vin, topic, errors = false, received = false }: FeedFilter, at: FeedPosition): FeedBatch {
    const kept = [
      ...(received ? [] : this.#errors.after(at.errors)),
      ...(errors ? [] : this.#ordinary.after(at.ordinary)),
    ]
    const missed = [
      received ? 0 : Math.max(0, this.#errors.first - at.errors),
      errors ? 0 : Math.max(0, this.#ordinary.first - at.ordinary),
    ]
    const items = kept.toSorted((a, b) => a.place - b.place).map(({ item }) => item)
    return {
      items: items.filter(
        (item) =>
          (!received || item.kind === 'received') &&
          (vin === undefined || vinsOf(item).includes(vin)) &&
          (topic === undefined || ('event' in item && item.event?.topic === topic)),
      ),
      missed: missed.reduce((sum, count) => sum + count, 0),
      cursor: `${this.#name()}.${this.#ordinary.count}.${this.#errors.count}`,
    }
  }

  /** A reader without a cursor, or with a cursor of an earlier process, starts with the oldest items and has missed none. */
  #positionOf(since: string | undefined): FeedPosition {
    const [run, ordinary, errors] = since?.split('.') ?? []
    const isOurs = run === this.#name() && [ordinary, errors].every((part) => /^\d{1,15}$/.test(part ?? ''))
    return isOurs
      ? { ordinary: Number(ordinary), errors: Number(errors) }
      : { ordinary: this.#ordinary.first, errors: this.#errors.first }
  }

  /** Made late, because some runtimes have neither a clock nor random numbers before the first request. */
  #name(): string {
    return (this.#run ??= crypto.randomUUID().slice(0, 8))
  }

  #push(happening: FeedContent, isError: boolean, bytes: number = 0): void {
    const ring = isError ? this.#errors : this.#ordinary
    this.#places += 1
    const item = { ...happening, atMs: this.#now() }
    ring.push({
      item,
      place: this.#places,
      bytes: itemBytes + (isError && 'bytes' in item ? (item.bytes ?? 0) : bytes),
    })
    for (const wake of this.#waiting) wake()
  }

  #next(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        this.#waiting.delete(wake)
        signal.removeEventListener('abort', wake)
        resolve()
      }
      this.#waiting.add(wake)
      signal.addEventListener('abort', wake)
    })
  }
}

function failed(error: unknown, { event, delivery, handler, nextAt }: ErrorDetails): FeedContent {
  const { id, attempt } = delivery ?? {}
  const bytes = event === undefined ? 0 : sizeOf(event)
  return { kind: 'failed', id, event, bytes, attempt, handler, error: errorText(error).slice(0, 2_000), nextAt }
}

function vinsOf(item: FeedItem): readonly (string | undefined)[] {
  if (item.kind === 'refused') return item.vins
  if (item.kind === 'settled') return [item.vin]
  return 'event' in item && item.event !== undefined ? [vinOfEvent(item.event)] : []
}

/** Errors can quote a VIN, and so can a message of no vehicle and a body that could not be read. */
function isAbout(item: FeedItem, vin: string): boolean {
  if (vinsOf(item).includes(vin) || ('error' in item && mentions(item.error, vin))) return true
  if (!('event' in item) || item.event === undefined || vinOfEvent(item.event) !== undefined) return false
  return mentions(item.event.topic === 'malformed' ? item.event.text : jsonText(item.event.raw ?? {}), vin)
}

/** The size of a message that comes without it. Errors are rare, so writing the message as JSON is cheap enough. */
function sizeOf(event: About): number {
  return event.topic === 'malformed' ? event.text.length : event.raw === null ? 0 : jsonText(event.raw).length
}
