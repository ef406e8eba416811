import { parse, stringify } from 'uuid'

/** Ids of messages that wait behind others, first in, first out, in a few bytes each. There is one for many a lane, so it is data. */
export interface WaitingIds {
  size: number
  first: Chunk | undefined
  last: Chunk | undefined
}

/** One of them: its id, a UUIDv7, and six bits of the owner's. */
export interface WaitingId {
  readonly id: string
  /** 0 to 63. */
  readonly flags: number
}

interface Chunk {
  readonly bytes: Uint8Array
  from: number
  to: number
  next: Chunk | undefined
}

/** An id. Where all UUIDv7 are the same, in the halves of two bytes, are the flags. */
const entryBytes = 16
const versionAt = 6
const variantAt = 8

/** Lanes are many and mostly short: the first chunk is as small as engines keep without a buffer, each next one twice as large. */
const firstEntries = 4
const mostEntries = 1024

export function createWaitingIds(): WaitingIds {
  return { size: 0, first: undefined, last: undefined }
}

/** Adds one at the end. Throws a `TypeError` for what is no UUIDv7. */
export function pushId(ids: WaitingIds, id: string, flags: number): void {
  const bytes = parse(id)
  const version = bytes[versionAt] ?? 0
  const variant = bytes[variantAt] ?? 0
  if (version >> 4 !== 7 || variant >> 6 !== 2) throw new TypeError('An id of a message is not a UUIDv7.')
  bytes[versionAt] = (version & 0x0f) | ((flags & 0x0f) << 4)
  bytes[variantAt] = (variant & 0x3f) | ((flags >> 4) << 6)
  let chunk = ids.last
  if (chunk === undefined || chunk.to === chunk.bytes.length) {
    const entries = chunk === undefined ? firstEntries : Math.min(mostEntries, (2 * chunk.bytes.length) / entryBytes)
    const added: Chunk = { bytes: new Uint8Array(entries * entryBytes), from: 0, to: 0, next: undefined }
    if (chunk === undefined) ids.first = added
    else chunk.next = added
    ids.last = added
    chunk = added
  }
  chunk.bytes.set(bytes, chunk.to)
  chunk.to += entryBytes
  ids.size += 1
}

/** Takes the first one. */
export function shiftId(ids: WaitingIds): WaitingId | undefined {
  const chunk = ids.first
  if (chunk === undefined) return undefined
  const { bytes, from } = chunk
  const version = bytes[from + versionAt] ?? 0
  const variant = bytes[from + variantAt] ?? 0
  bytes[from + versionAt] = (version & 0x0f) | 0x70
  bytes[from + variantAt] = (variant & 0x3f) | 0x80
  const id = stringify(bytes, from)
  const flags = (version >> 4) | ((variant >> 6) << 4)
  chunk.from += entryBytes
  ids.size -= 1
  if (chunk.from === chunk.to) {
    ids.first = chunk.next
    if (ids.first === undefined) ids.last = undefined
  }
  return { id, flags }
}

/** Takes over all of `others`, behind its own. */
export function appendIds(ids: WaitingIds, others: WaitingIds): void {
  if (ids.last === undefined) ids.first = others.first
  else ids.last.next = others.first
  ids.last = others.last ?? ids.last
  ids.size += others.size
}
