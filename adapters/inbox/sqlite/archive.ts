import { setImmediate } from 'node:timers/promises'
import { bytesOfMessage, pageBytes } from '../../../src/base/pages.ts'
import { firstSeqAt, seqOf } from '../../../src/inbox/delivery-id.ts'
import type { Archive, DeadLetter, ListedMessage, Selection, Waiting } from '../../../src/inbox/inbox.ts'
import { listedLetter } from '../../../src/inbox/inbox.ts'
import type { InboxFile, Move, Page } from './file/interface.ts'
import type { CommitQueue } from './group-commit.ts'
import type { Health } from './health.ts'
import type { Moves } from './moves.ts'
import type { Pending } from './pending.ts'

interface ArchiveParts {
  readonly file: Pick<InboxFile, 'messages' | 'deadLetters' | 'settled' | 'message'>
  readonly commits: CommitQueue
  readonly health: Health
  readonly moves: Moves
  readonly pending: Pending
}

/** What the file keeps, for operators. */
export class FileArchive implements Archive {
  readonly #parts: ArchiveParts

  constructor(parts: ArchiveParts) {
    this.#parts = parts
  }

  async list(what: 'dead' | 'settled' | 'all', which: Selection): Promise<readonly ListedMessage[]> {
    const { id } = which
    const found = await (what === 'all' ? this.#newestFirst(which) : this.#oldestFirst(what, which))
    return found.filter(({ message }) => id === undefined || message.id === id)
  }

  async revive(id: string): Promise<Waiting | undefined> {
    const { file, commits, health, moves, pending } = this.#parts
    const seq = seqOf(id)
    if (Number.isNaN(seq)) return undefined
    if (commits.isChanging(seq)) await commits.flush()
    const message = await health.read(() => file.message(seq))
    if (message?.id !== id) return undefined
    const back = await this.#moveBack(id, seq)
    if (health.refusal !== undefined) throw health.refusal
    pending.reserve(1, message.bytes)
    if (!(await moves.revive(seq, message.bytes, back))) return undefined
    return { id, lane: message.lane, kind: message.kind }
  }

  async discard(id: string): Promise<boolean> {
    const seq = seqOf(id)
    return !Number.isNaN(seq) && this.#parts.moves.discard(seq)
  }

  #newestFirst(which: Selection): Promise<readonly ListedMessage[]> {
    const { file } = this.#parts
    const starts = [seqOrNone(which.id) + 1, seqOrNone(which.after)]
    const start = starts.find((seq) => !Number.isNaN(seq)) ?? Number.MAX_SAFE_INTEGER
    return this.#read(which.limit, start, (limit, from) => file.messages({ ...which, limit }, from), bytesOfMessage)
  }

  async #oldestFirst(what: 'dead' | 'settled', which: Selection): Promise<readonly ListedMessage[]> {
    const { file } = this.#parts
    const { limit: most, fromMs } = which
    // The id of a message is never older than its receipt.
    const beforeFrom = fromMs === undefined ? -1 : firstSeqAt(fromMs) - 1
    const starts = [seqOrNone(which.id) - 1, seqOrNone(which.after)]
    const start = Math.max(starts.find((seq) => !Number.isNaN(seq)) ?? -1, beforeFrom)
    if (what === 'dead') {
      const read = (limit: number, from: number): Promise<Page<DeadLetter>> =>
        file.deadLetters({ ...which, limit }, from)
      return (await this.#read(most, start, read, bytesOfMessage)).map(listedLetter)
    }
    const settled = await this.#read(
      most,
      start,
      (limit, from) => file.settled({ ...which, limit }, from),
      ({ bytes }) => bytes,
    )
    return settled.map((message) => ({ message, state: 'settled' }))
  }

  /** At most `limit` items, until they have the bytes of a page. */
  async #read<T>(
    limit: number,
    start: number,
    read: (limit: number, from: number) => Promise<Page<T>>,
    bytesOf: (item: T) => number,
  ): Promise<readonly T[]> {
    const { commits, health } = this.#parts
    await commits.flush()
    const items: T[] = []
    let bytes = 0
    for await (const page of pages(start, (from) => health.read(() => read(limit - items.length, from)))) {
      items.push(...page)
      for (const item of page) bytes += bytesOf(item)
      if (items.length >= limit || bytes >= pageBytes) break
    }
    return items
  }

  /** The move that undoes a revival: back to the dead letters, or to the settled messages. */
  async #moveBack(id: string, seq: number): Promise<Move> {
    const { file, health } = this.#parts
    const [letter] = (await health.read(() => file.deadLetters({ limit: 1 }, seq - 1))).items
    if (letter?.id !== id) return { to: 'settled', seq }
    const { id: _, message: __, ...reason } = letter
    return { to: 'dead', seq, ...reason }
  }
}

const seqOrNone = (id: string | undefined): number => (id === undefined ? Number.NaN : seqOf(id))

/** Reads page by page from `start` on, so that other work can run in between. */
export async function* pages<T>(start: number, read: (from: number) => Promise<Page<T>>): AsyncGenerator<readonly T[]> {
  for (let next: number | undefined = start; next !== undefined;) {
    const page: Page<T> = await read(next)
    if (page.items.length > 0) yield page.items
    next = page.next
    if (next !== undefined) await setImmediate()
  }
}
