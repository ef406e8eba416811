/** Left in the metadata of a position, so that the next owner can count the processes that ended during a message. */
export interface Mark {
  /** The process that may have messages in hand. Left out: it has none. */
  readonly owner?: string | undefined
  /** A process ended, and it may have had each message below this offset in hand: it counts once. */
  readonly upTo: number
  /** The messages below `upTo` that count more than once. */
  readonly ends: ReadonlyMap<number, number>
  /** The messages below `upTo` that the owner has in hand. Above, any can be. */
  readonly hand: readonly number[]
}

const noMark: Mark = { upTo: -1, ends: new Map(), hand: [] }

/** Brokers accept 4,096 bytes by default, and some services less. This is enough for hundreds of messages. */
const mostBytes = 1_000

/** Offsets as the distance from the one before, the first from the position: messages in hand, and after each count the messages that have it. */
interface Written {
  readonly owner: string | undefined
  readonly upTo: number | undefined
  readonly hand: readonly number[] | undefined
  readonly ends: readonly (readonly [count: number, ...distances: number[]])[] | undefined
}

/** The metadata of a position. When it would be too long, it has the messages with the highest counts only. */
export function writeMark({ owner, upTo, ends, hand }: Mark, position: number): string {
  const counted = [...ends].toSorted(([, one], [, other]) => other - one)
  for (let most = ends.size + hand.length; ; most = Math.floor(most * 0.9)) {
    const byCount = new Map<number, number[]>()
    for (const [at, count] of counted.slice(0, most)) byCount.set(count, [...(byCount.get(count) ?? []), at])
    const inHand = hand.toSorted((one, other) => (ends.get(other) ?? 1) - (ends.get(one) ?? 1)).slice(0, most)
    const written: Written = {
      owner,
      upTo: upTo > position ? upTo : undefined,
      hand: inHand.length === 0 ? undefined : distances(inHand, position),
      ends: byCount.size === 0 ? undefined : [...byCount].map(([count, some]) => [count, ...distances(some, position)]),
    }
    const text = JSON.stringify(written)
    if (text.length <= mostBytes) return text === '{}' ? '' : text
  }
}

/** The mark in the metadata of a position. Metadata that this inbox did not write is no mark. */
export function readMark(text: string, position: number): Mark {
  try {
    const { owner, upTo = -1, hand = [], ends = [] }: Written = JSON.parse(text)
    return {
      owner: typeof owner === 'string' ? owner : undefined,
      upTo,
      hand: offsets(hand, position),
      ends: new Map(ends.flatMap(([count, ...some]) => offsets(some, position).map((at) => [at, count] as const))),
    }
  } catch {
    return noMark
  }
}

/** What a new owner knows when the position and the end of its partition are these. */
export function inherited(mark: Mark, isOwn: boolean, upTo: number): Pick<Mark, 'upTo' | 'ends'> {
  if (mark.owner === undefined || isOwn) return mark
  const ends = new Map(mark.ends)
  for (const offset of mark.hand) ends.set(offset, (ends.get(offset) ?? 1) + 1)
  return { upTo: Math.max(upTo, mark.upTo), ends }
}

function distances(given: readonly number[], position: number): number[] {
  const sorted = given.toSorted((one, other) => one - other)
  return sorted.map((offset, index) => offset - (sorted[index - 1] ?? position))
}

function offsets(given: readonly number[], position: number): number[] {
  let at = position
  return given.map((distance) => (at += distance))
}
