/** Ids of messages that wait behind others, first in, first out. Many lanes have one, so it is three numbers for one {@link IdStore}. */
export interface WaitingIds {
  size: number
  /** Blocks of the store. */
  first: number
  last: number
}

/** The id of a message, and eight bits for its owner. */
export interface WaitingId {
  readonly id: string
  /** 0 to 255. */
  readonly flags: number
}

/** A UUID, then the flags. */
const idBytes = 16
const entryBytes = idBytes + 1
const entriesOfBlock = 6
/** The number of the next block, then one byte with the first entry (4 bits) and the entry behind the last. */
const headBytes = 5
const blockBytes = headBytes + entriesOfBlock * entryBytes
const blocksOfSlab = 128
/** No block. Larger numbers would be objects of their own in V8. */
const none = 0x7fff_ffff

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/

/**
 * The memory of many {@link WaitingIds}, in blocks of a few ids. An array for each vehicle would take several times the
 * memory of its content.
 */
export class IdStore {
  #slabs: DataView[] = []
  /** Blocks that were made. */
  #made = 0
  #used = 0
  /** The first of the blocks that are free again. */
  #free = none

  /** The memory that it holds. */
  get bytes(): number {
    return this.#slabs.length * blocksOfSlab * blockBytes
  }

  /** Adds one at the end. Throws a `TypeError` for an id that is not a UUID. */
  push(ids: WaitingIds, id: string, flags: number): void {
    if (!uuid.test(id)) throw new TypeError('The id of a message is not a UUID.')
    if (ids.size === 0 || this.#end(ids.last) === entriesOfBlock) this.#extend(ids)
    const end = this.#end(ids.last)
    this.#write(ids.last, end, id, flags)
    this.#setRange(ids.last, this.#begin(ids.last), end + 1)
    ids.size += 1
  }

  /** Adds one at the start: as a rule the one that was taken last. */
  unshift(ids: WaitingIds, id: string, flags: number): void {
    if (ids.size === 0) {
      this.push(ids, id, flags)
      return
    }
    if (this.#begin(ids.first) === 0) {
      const block = this.#take()
      this.#setNext(block, ids.first)
      this.#setRange(block, entriesOfBlock, entriesOfBlock)
      ids.first = block
    }
    const begin = this.#begin(ids.first) - 1
    this.#write(ids.first, begin, id, flags)
    this.#setRange(ids.first, begin, this.#end(ids.first))
    ids.size += 1
  }

  /** Takes the first one. */
  shift(ids: WaitingIds): WaitingId | undefined {
    if (ids.size === 0) return undefined
    const block = ids.first
    const begin = this.#begin(block)
    const slab = this.#slab(block)
    const at = offset(block) + headBytes + begin * entryBytes
    const one = hex(slab.getUint32(at))
    const two = hex(slab.getUint32(at + 4))
    const three = hex(slab.getUint32(at + 8))
    const four = hex(slab.getUint32(at + 12))
    const flags = slab.getUint8(at + idBytes)
    ids.size -= 1
    if (begin + 1 === this.#end(block)) {
      ids.first = this.#next(block)
      this.#release(block)
    } else this.#setRange(block, begin + 1, this.#end(block))
    return {
      id: `${one}-${two.slice(0, 4)}-${two.slice(4)}-${three.slice(0, 4)}-${three.slice(4)}${four}`,
      flags,
    }
  }

  /** Moves all of `others` behind its own. */
  append(ids: WaitingIds, others: WaitingIds): void {
    if (others.size === 0) return
    if (ids.size === 0) ids.first = others.first
    else this.#setNext(ids.last, others.first)
    ids.last = others.last
    ids.size += others.size
    others.size = 0
  }

  #write(block: number, entry: number, id: string, flags: number): void {
    const slab = this.#slab(block)
    const at = offset(block) + headBytes + entry * entryBytes
    slab.setUint32(at, Number.parseInt(id.slice(0, 8), 16))
    slab.setUint32(at + 4, Number.parseInt(id.slice(9, 13) + id.slice(14, 18), 16))
    slab.setUint32(at + 8, Number.parseInt(id.slice(19, 23) + id.slice(24, 28), 16))
    slab.setUint32(at + 12, Number.parseInt(id.slice(28), 16))
    slab.setUint8(at + idBytes, flags)
  }

  #extend(ids: WaitingIds): void {
    const block = this.#take()
    this.#setNext(block, none)
    this.#setRange(block, 0, 0)
    if (ids.size === 0) ids.first = block
    else this.#setNext(ids.last, block)
    ids.last = block
  }

  #take(): number {
    this.#used += 1
    const free = this.#free
    if (free !== none) {
      this.#free = this.#next(free)
      return free
    }
    const block = this.#made
    if (block === this.#slabs.length * blocksOfSlab)
      this.#slabs.push(new DataView(new ArrayBuffer(blocksOfSlab * blockBytes)))
    this.#made += 1
    return block
  }

  #release(block: number): void {
    this.#used -= 1
    if (this.#used === 0) {
      this.#slabs = []
      this.#made = 0
      this.#free = none
      return
    }
    this.#setNext(block, this.#free)
    this.#free = block
  }

  #slab(block: number): DataView {
    const slab = this.#slabs[Math.floor(block / blocksOfSlab)]
    if (slab === undefined) throw new RangeError(`There is no block ${block}.`)
    return slab
  }

  #next(block: number): number {
    return this.#slab(block).getUint32(offset(block))
  }

  #setNext(block: number, next: number): void {
    this.#slab(block).setUint32(offset(block), next)
  }

  #begin(block: number): number {
    return this.#slab(block).getUint8(offset(block) + 4) >> 4
  }

  #end(block: number): number {
    return this.#slab(block).getUint8(offset(block) + 4) & 15
  }

  #setRange(block: number, begin: number, end: number): void {
    this.#slab(block).setUint8(offset(block) + 4, (begin << 4) | end)
  }
}

const offset = (block: number): number => (block % blocksOfSlab) * blockBytes

const hex = (bits: number): string => bits.toString(16).padStart(8, '0')

export function createWaitingIds(): WaitingIds {
  return { size: 0, first: none, last: none }
}
