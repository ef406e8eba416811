import type { InboxMessage } from '../../../src/inbox/inbox.ts'

/** A message that waits in this process. Without its text, Postgres alone has that. */
interface Found {
  readonly message: Omit<InboxMessage, 'text'>
  text: string | undefined
}

interface LaneOf<One> {
  /** In their order. */
  readonly all: Set<One>
  isPaused: boolean
}

/** The most that one statement reads for a lane that goes on. */
const mostTexts = 100
const mostBytes = 1_048_576

/**
 * Which texts are in memory. Texts of a paused lane are not: a vehicle whose messages fail for an hour must not take the room of others.
 * They are read again when the lane goes on.
 */
export class Texts<One extends Found> {
  /** The size of the texts in memory. */
  bytes = 0
  readonly #lanes = new Map<string, LaneOf<One>>()

  /** `isPaused`: its lane is paused, so it is not tried yet. */
  add(found: One, isPaused: boolean): void {
    const { lane: name, bytes } = found.message
    let lane = this.#lanes.get(name)
    if (lane === undefined) {
      lane = { all: new Set(), isPaused }
      this.#lanes.set(name, lane)
    }
    lane.all.add(found)
    if (lane.isPaused) found.text = undefined
    else if (found.text !== undefined) this.bytes += bytes
  }

  forget(found: One): void {
    this.#drop(found)
    const { lane: name } = found.message
    const lane = this.#lanes.get(name)
    lane?.all.delete(found)
    if (lane?.all.size === 0) this.#lanes.delete(name)
  }

  /** Its lane is paused. */
  rest({ message }: One): void {
    const lane = this.#lanes.get(message.lane)
    if (lane === undefined) return
    lane.isPaused = true
    for (const each of lane.all) this.#drop(each)
  }

  /** Its lane goes on. Returns the messages whose texts it needs now or soon: none while it has its own. */
  wake(found: One): readonly One[] {
    const lane = this.#lanes.get(found.message.lane)
    if (lane === undefined) return []
    lane.isPaused = false
    const missing: One[] = []
    let bytes = 0
    let isBehind = false
    if (found.text !== undefined) return []
    for (const each of lane.all) {
      isBehind ||= each === found
      if (!isBehind || each.text !== undefined) continue
      bytes += each.message.bytes
      if (missing.length > 0 && (missing.length === mostTexts || bytes > mostBytes)) break
      missing.push(each)
    }
    return missing
  }

  /** It was read. */
  keep(found: One, text: string): void {
    const lane = this.#lanes.get(found.message.lane)
    if (lane?.all.has(found) !== true || found.text !== undefined) return
    found.text = text
    this.bytes += found.message.bytes
  }

  #drop(found: One): void {
    if (found.text !== undefined) this.bytes -= found.message.bytes
    found.text = undefined
  }
}
