import { parse, stringify } from 'uuid'

/** Ids of messages that wait behind others, first in, first out, in a few bytes each. Many lanes have one, so it is plain data. */
export interface WaitingIds {
  size: number
  first: Chunk | undefined
  last: Chunk | undefined
}

/** The id of a message, and eight bits for its owner. */
export interface WaitingId {
  readonly id: string
  /** 0 to 255. */
  readonly flags: number
}

interface Chunk {
  readonly bytes: Uint8Array
  from: number
  to: number
  next: Chunk | undefined
}

/** A UUID, then the flags. */
const idBytes = 16
const entryBytes = idBytes + 1

/** Lanes are many and mostly short: the first chunk is small, and each next one is twice as large. */
const firstEntries = 4
const mostEntries = 1024

export function createWaitingIds(): WaitingIds {
  return { size: 0, first: undefined, last: undefined }
}

/** Adds one at the end. Throws a `TypeError` for an id that is not a UUID. */
export function pushId(ids: WaitingIds, id: string, flags: number): void {
  const idAsBytes = parse(id)
  let chunk = ids.last
  if (chunk === undefined || chunk.to === chunk.bytes.length) {
    const entries = chunk === undefined ? firstEntries : Math.min(mostEntries, (2 * chunk.bytes.length) / entryBytes)
    const added: Chunk = { bytes: new Uint8Array(entries * entryBytes), from: 0, to: 0, next: undefined }
    if (chunk === undefined) ids.first = added
    else chunk.next = added
    ids.last = added
    chunk = added
  }
  chunk.bytes.set(idAsBytes, chunk.to)
  chunk.bytes[chunk.to + idBytes] = flags
  chunk.to += entryBytes
  ids.size += 1
}

/** Takes the first one. */
export function shiftId(ids: WaitingIds): WaitingId | undefined {
  const chunk = ids.first
  if (chunk === undefined) return undefined
  const { bytes, from } = chunk
  const id = stringify(bytes, from)
  const flags = bytes[from + idBytes] ?? 0
  chunk.from += entryBytes
  ids.size -= 1
  if (chunk.from === chunk.to) {
    ids.first = chunk.next
    if (ids.first === undefined) ids.last = undefined
  }
  return { id, flags }
}

/** Moves all of `others` behind its own. */
export function appendIds(ids: WaitingIds, others: WaitingIds): void {
  if (ids.last === undefined) ids.first = others.first
  else ids.last.next = others.first
  ids.last = others.last ?? ids.last
  ids.size += others.size
}
