import type { Sample } from '../../operator/samples.ts'
import type { About, Item, Stats, StoredMessage } from './answers.ts'
import { countOf } from './format.ts'
import { post, read, readFeed, RequestError, secret } from './receiver.ts'
import { queryOf, route } from './route.ts'
import { type ListRow, ListRows } from './rows.ts'
import { Signal, watch } from './signal.ts'

/** The most rows of the list, as in the receiver's feed. */
const mostRows = 500

/** The least time between two renders of the list, in milliseconds. */
const drawMs = 250

/** The most items that wait to be rendered, for a tab in the background. */
const mostWaiting = 2_000

const rows = new ListRows(mostRows)

export const connection: Signal<'connecting' | 'open' | 'lost'> = new Signal('connecting')
/** Since when the receiver is gone, and the error. */
export const lost: Signal<{ readonly at: string; readonly text: string } | undefined> = new Signal(undefined)
export const about: Signal<About | undefined> = new Signal(undefined)
export const stats: Signal<Stats | undefined> = new Signal(undefined)
/** Accepted messages per second. */
export const rate: Signal<number | undefined> = new Signal(undefined)
export const samples: Signal<readonly Sample[]> = new Signal([])

/** The rows that are shown, newest first. */
export const shown: Signal<readonly ListRow[]> = new Signal([])
/** The number of rows that arrived while the list was held. */
export const unseen: Signal<number> = new Signal(0)
/** The number of items that the feed dropped, because they arrived faster than it sends. */
export const missed: Signal<number> = new Signal(0)
export const isLoading: Signal<boolean> = new Signal(true)

export const isPaused: Signal<boolean> = new Signal(false)
/** Whether the reader points at the list, or has scrolled down in it. */
export const isBusy: Signal<boolean> = new Signal(false)
export const isHeld = (): boolean => isPaused.value || isBusy.value

export const toast: Signal<string> = new Signal('')
let endOfToast: ReturnType<typeof setTimeout> | undefined

/** Shows a short text that disappears by itself. */
export function say(text: string): void {
  clearTimeout(endOfToast)
  toast.value = text
  endOfToast = setTimeout(() => (toast.value = ''), 4_000)
}

export const knownRow = (key: string): ListRow | undefined => rows.get(key)

/** The filters that the receiver applies itself. Only the live list has them. */
function feedFilter(): string {
  const { view, query } = route.value
  return view === 'live' ? queryOf({ vin: query['vin'], topic: query['topic'] }) : ''
}

let waiting: Item[] = []
let timer: ReturnType<typeof setTimeout> | undefined

function draw(): void {
  timer = undefined
  const items = waiting
  waiting = []
  show(rows.add(items))
}

/** Renders the list. A held list keeps its rows in their places, and only updates them. */
function show(added: number): void {
  if (isHeld() && shown.value.length > 0) {
    unseen.value = Math.min(mostRows, unseen.value + added)
    shown.value = shown.value.map((row) => rows.get(row.key) ?? row)
  } else {
    unseen.value = 0
    shown.value = rows.list()
  }
}

function take(items: readonly Item[], missing: number): void {
  if (items.length === 0 && missing === 0) return
  waiting.push(...items)
  const dropped = Math.max(0, waiting.length - mostWaiting)
  waiting.splice(0, dropped)
  missed.value += missing + dropped
  timer ??= setTimeout(() => requestAnimationFrame(draw), drawMs)
}

/** Reads messages from the inbox, because the feed has no messages that were settled before the page was opened. */
async function readStored(filter: string, signal: AbortSignal): Promise<void> {
  const { messages } = await read<{ messages: readonly StoredMessage[] }>(`messages?limit=100&${filter}`, signal)
  rows.addStored(messages)
  show(0)
}

/** Reads older messages. `next` is `null` when there are no more. */
export const readOlder = (
  after: string,
): Promise<{ readonly messages: readonly StoredMessage[]; readonly next: string | null }> =>
  read(`messages?${queryOf({ limit: 100, after })}&${feedFilter()}`)

async function follow(filter: string, signal: AbortSignal): Promise<void> {
  let cursor: string | undefined
  for (let tries = 0; !signal.aborted; tries += 1) {
    try {
      const opened = (): void => {
        tries = 0
        lost.value = undefined
        connection.value = 'open'
        void readAbout()
        readStored(filter, signal)
          .catch(() => {})
          .finally(() => (isLoading.value = false))
      }
      const query = [filter, queryOf({ since: cursor })].filter((part) => part !== '').join('&')
      await readFeed(query, signal, opened, (batch) => {
        cursor = batch.cursor ?? cursor
        take(batch.items, batch.missed ?? 0)
      })
      note('The connection ended.')
    } catch (error) {
      if (!signal.aborted) note(error instanceof Error ? error.message : '')
    }
    await new Promise((resolve) => setTimeout(resolve, Math.min(5_000, 500 * 2 ** tries)))
  }

  function note(text: string): void {
    if (signal.aborted || secret.value === undefined) return
    connection.value = 'lost'
    lost.value = { at: lost.value?.at ?? new Date().toISOString(), text }
  }
}

async function readAbout(): Promise<void> {
  about.value = await read<About>('about').catch(() => undefined)
}

/** Runs `run` until the signal aborts, each time `everyMs` after the previous run. */
function repeat(everyMs: number, signal: AbortSignal, run: () => Promise<void>): void {
  const again = async (): Promise<void> => {
    if (signal.aborted) return
    if (document.visibilityState === 'visible') await run().catch(() => {})
    if (!signal.aborted) setTimeout(() => void again(), everyMs)
  }
  void again()
}

/** Reads from the receiver while there is a secret. */
export function start(): void {
  const filterIfAllowed = (): string | undefined => (secret.value === undefined ? undefined : feedFilter())
  watch(filterIfAllowed, (filter) => {
    if (filter === undefined) return
    const ended = new AbortController()
    rows.clear()
    shown.value = []
    unseen.value = 0
    missed.value = 0
    isLoading.value = true
    void follow(filter, ended.signal)
    return () => {
      ended.abort()
      waiting = []
    }
  })
  watch(
    () => secret.value,
    (given) => {
      if (given === undefined) return
      const ended = new AbortController()
      let before: { readonly at: number; readonly received: number } | undefined
      repeat(2_000, ended.signal, async () => {
        const now = await read<Stats>('stats', ended.signal)
        const at = performance.now()
        if (before !== undefined && now.received >= before.received)
          rate.value = ((now.received - before.received) * 1_000) / (at - before.at)
        before = { at, received: now.received }
        stats.value = now
      })
      repeat(5_000, ended.signal, async () => {
        samples.value = (await read<{ samples: readonly Sample[] }>('samples', ended.signal)).samples
      })
      return () => ended.abort()
    },
  )
  watch(isHeld, (held) => {
    if (!held) show(0)
  })
}

/** Replays dead letters. Resolves to whether that succeeded. */
export async function replay(path: string, which: object = {}): Promise<boolean> {
  try {
    const { messages } = await post<{ messages: number }>(path, which)
    say(
      messages === 0
        ? 'Nothing was replayed: the message is no longer a dead letter.'
        : `${countOf(messages, 'dead letter')} ${messages === 1 ? 'was' : 'were'} replayed. Their handlers run again.`,
    )
    return true
  } catch (error) {
    say(error instanceof RequestError ? `Nothing was replayed. ${error.message}` : 'Nothing was replayed.')
    return false
  }
}
