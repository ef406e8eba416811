/** Without an order per lane these are the ones that can have been in hand when the process ended: more than run at once. */
const firstOfAll = 64

/**
 * Which claims have to be on the disk before the message is handed out, after a process that did not come to its end.
 *
 * A message that ends its process is met again at the next start, and then it is the first of its lane. So counting these is
 * enough to find it, and a backlog of a million is not held up by a sync for each of its messages.
 */
export interface Suspects {
  /** Messages up to this place were there when the process before ended. */
  begin(upTo: number): void
  readonly any: boolean
  /** Whether this claim has to be counted first. Asked once for each claim. */
  take(place: number, lane: string): boolean
  /** It could not be counted, so the message was not handed out. */
  giveBack(lane: string): void
}

export function createSuspects(): Suspects {
  let upTo = -1
  let taken = 0
  const lanes = new Set<string>()
  return {
    begin(place) {
      upTo = place
    },
    get any() {
      return upTo >= 0
    },
    take(place, lane) {
      if (place > upTo) return false
      taken += 1
      const isFirst = !lanes.has(lane)
      lanes.add(lane)
      return isFirst || taken <= firstOfAll
    },
    giveBack(lane) {
      taken -= 1
      lanes.delete(lane)
    },
  }
}
