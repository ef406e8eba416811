import type { LetterSummary } from '../../operator/app.ts'
import type { Event, Item, StoredMessage } from './answers.ts'
import { gistOf } from './format.ts'

/** The outcome of a message, or the kind of another item. */
export type RowStatus = 'waiting' | 'handled' | 'failed' | 'dead' | 'duplicate' | 'lost' | 'refused' | 'gap' | 'test'

interface FailedAttempt {
  readonly at: string
  readonly attempt: number | undefined
  readonly handler: string | undefined
  readonly error: string
  readonly nextAt: string | undefined
}

/** A row of a list: a message with everything that is known about it, or an item without a message. */
export interface ListRow {
  /** The delivery's id, or what identifies an item without a message. */
  readonly key: string
  /** The delivery's id. `undefined`: the row is no message. */
  readonly id: string | undefined
  /** Rows are sorted by it. */
  readonly atMs: number
  readonly outcome: RowStatus
  readonly vin: string
  readonly topic: string
  readonly event?: Event | undefined
  /** The message as it came, where `event.raw` is written in another way. */
  readonly text?: string | undefined
  /** From receipt to outcome. */
  readonly lagMs?: number | undefined
  readonly attempts?: number | undefined
  /** From receipt to the answer. */
  readonly acknowledgedMs?: number | undefined
  readonly error?: string | undefined
  readonly failures: readonly FailedAttempt[]
  readonly handlers?: readonly string[] | undefined
  /** The item of a row without a message. */
  readonly item?: Item | undefined
}

/** The first 48 bits of a UUIDv7 are the time of receipt. */
const receivedAtMs = (id: string): number => Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16)

const blank = (key: string, about: Pick<ListRow, 'id' | 'atMs' | 'outcome'> & Partial<ListRow>): ListRow => ({
  key,
  vin: about.event?.vin ?? '',
  topic: about.event?.topic ?? '',
  failures: [],
  ...about,
})

const texts = new WeakMap<Event, string>()

export function textOf({ event, error, item, outcome }: ListRow): string {
  if (item?.isTest) return `fleethook doctor sent a request that was refused: ${item.error ?? ''}`
  if (item?.kind === 'refused') return `${item.error ?? ''}${item.hint === undefined ? '' : `. ${item.hint}`}`
  if (item?.kind === 'test') return `test message ${item.test ?? ''}`
  if (error !== undefined && (outcome === 'failed' || outcome === 'dead')) return error
  if (event === undefined) return ''
  const known = texts.get(event)
  if (known !== undefined) return known
  const text = gistOf(event)
  texts.set(event, text)
  return text
}

export function rowOf({ id, state, event, text, death, handlers }: StoredMessage): ListRow {
  const outcome = state === 'settled' ? 'handled' : state
  const row = blank(id, { id, event, text, outcome, atMs: receivedAtMs(id), handlers })
  return death === undefined ? row : { ...row, error: death.error, attempts: death.attempts }
}

/** A dead letter of a list, which has no event. */
export function rowOfLetter({ id, branch, vin, topic, diedAt, attempts, error }: LetterSummary): ListRow {
  const about = { id, vin: vin ?? '', topic, attempts, error: branch ? `${branch}: ${error}` : error } as const
  return blank(id, { ...about, outcome: 'dead', atMs: Date.parse(diedAt) })
}

/** An item without a message has no id. Its key is the same when the feed sends it again. */
function keyOf(item: Item): string {
  const { kind, at, id, error, count, test, event } = item
  return id ?? event?.id ?? [kind, at, error ?? test ?? '', count ?? ''].join(' ')
}

/** Adds an item to what is known about a message. */
function withItem(known: ListRow | undefined, item: Item): ListRow {
  const { kind, at, id, event, error } = item
  const key = keyOf(item)
  const atMs = id === undefined ? Date.parse(at) : receivedAtMs(id)
  const row = known ?? blank(key, { id, atMs, outcome: 'waiting' })
  const seen = event === undefined ? row : { ...row, event, vin: event.vin ?? '', topic: event.topic }
  switch (kind) {
    case 'received': {
      const acknowledgedMs = event === undefined ? undefined : Date.parse(at) - Date.parse(event.receivedAt)
      return { ...seen, text: item.text, acknowledgedMs }
    }
    case 'settled': {
      const { outcome = 'handled', lagMs, attempts, vin } = item
      return { ...seen, outcome, lagMs, attempts, vin: seen.vin || (vin ?? ''), error: undefined }
    }
    case 'failed': {
      const { attempt, handler, nextAt } = item
      const failure = { at, attempt, handler, error: error ?? '', nextAt }
      const isKnown = row.failures.some((each) => each.at === at && each.handler === handler)
      if (isKnown) return row
      return {
        ...seen,
        outcome: 'failed',
        error,
        attempts: attempt,
        failures: [...row.failures, failure],
        atMs: Date.parse(at),
      }
    }
    case 'dead':
      return { ...seen, outcome: 'dead', error, attempts: item.attempts, atMs: Date.parse(at) }
    default:
      return {
        ...seen,
        outcome: item.isTest ? 'test' : kind,
        item,
        vin: event?.vin ?? item.vins?.[0] ?? '',
        topic: event?.topic ?? '',
      }
  }
}

/** Adds a message of the inbox to what the feed reported, which may be newer. */
export function withStored(known: ListRow | undefined, message: StoredMessage): ListRow {
  const stored = rowOf(message)
  const happened = (message.happened ?? []).filter(({ kind }) => kind === 'failed' || kind === 'settled')
  const told = happened.reduce<ListRow | undefined>(withItem, known)
  if (told === undefined) return stored
  const { event, text = told.text, vin, topic, handlers = told.handlers } = stored
  const row = { ...told, event, text, vin, topic, handlers }
  const isOpen = told.outcome === 'waiting' || told.outcome === 'failed'
  if (stored.outcome === 'waiting' || !isOpen) return row
  const { outcome, error, attempts = told.attempts } = stored
  return { ...row, outcome, error, attempts }
}

/** The newest rows, each with all of its items. */
export class ListRows {
  readonly #byKey = new Map<string, ListRow>()
  readonly #most: number

  constructor(most: number) {
    this.#most = most
  }

  /** Returns the number of rows that are new. */
  add(items: readonly Item[]): number {
    return this.#change(() => {
      for (const item of items) {
        const key = keyOf(item)
        this.#byKey.set(key, withItem(this.#byKey.get(key), item))
      }
    })
  }

  addStored(messages: readonly StoredMessage[]): void {
    this.#change(() => {
      for (const message of messages) this.#byKey.set(message.id, withStored(this.#byKey.get(message.id), message))
    })
  }

  get(key: string): ListRow | undefined {
    return this.#byKey.get(key)
  }

  /** Newest first. */
  list(): readonly ListRow[] {
    return [...this.#byKey.values()].sort((a, b) => b.atMs - a.atMs || (a.key < b.key ? 1 : -1))
  }

  clear(): void {
    this.#byKey.clear()
  }

  #change(change: () => void): number {
    const before = new Set(this.#byKey.keys())
    change()
    for (const { key } of this.list().slice(this.#most)) this.#byKey.delete(key)
    return [...this.#byKey.keys()].filter((key) => !before.has(key)).length
  }
}
