/** A queue of waiting work for one VIN. It exists only while it has work. */
export interface Lane<Work> {
  readonly key: string
  /** The work whose turn it is. */
  readonly head: Link<Work>
}

interface Link<Work> {
  readonly work: Work
  next: Link<Work> | undefined
}

interface OwnLane<Work> {
  readonly key: string
  head: Link<Work>
  tail: Link<Work>
  next: OwnLane<Work> | undefined
}

/**
 * Who is next. Work of one lane comes out in the order in which it went in, one piece at a time; lanes take turns, so
 * that one busy vehicle does not keep the others waiting. Every step costs the same, however many lanes there are.
 */
export interface Lanes<Work> {
  /** Adds work at the end of its lane. */
  add(key: string, work: Work): void
  /** Takes the next lane that may run; it stays away until `done` or `again`. */
  take(): Lane<Work> | undefined
  /** The lane's head is finished: the lane goes to the back of the queue, or ends when it was the last. */
  done(lane: Lane<Work>): void
  /** The lane's head is to be run once more: the lane goes to the back of the queue. */
  again(lane: Lane<Work>): void
  /** How many lanes have work. */
  readonly size: number
  /** Everything that waits or runs, lane by lane in order. */
  all(): Generator<Work>
}

/** No lanes yet. */
export function createLanes<Work>(): Lanes<Work> {
  const lanes = new Map<string, OwnLane<Work>>()
  let first: OwnLane<Work> | undefined
  let last: OwnLane<Work> | undefined

  function queue(lane: OwnLane<Work>): void {
    lane.next = undefined
    if (last === undefined) first = lane
    else last.next = lane
    last = lane
  }

  function known(lane: Lane<Work>): OwnLane<Work> | undefined {
    const own = lanes.get(lane.key)
    return own === lane ? own : undefined
  }

  return {
    add(key, work) {
      const link: Link<Work> = { work, next: undefined }
      const lane = lanes.get(key)
      if (lane === undefined) {
        const started: OwnLane<Work> = { key, head: link, tail: link, next: undefined }
        lanes.set(key, started)
        queue(started)
        return
      }
      lane.tail.next = link
      lane.tail = link
    },

    take() {
      const lane = first
      if (lane === undefined) return undefined
      first = lane.next
      if (first === undefined) last = undefined
      return lane
    },

    done(lane) {
      const own = known(lane)
      if (own === undefined) return
      const { next } = own.head
      if (next === undefined) {
        lanes.delete(own.key)
        return
      }
      own.head = next
      queue(own)
    },

    again(lane) {
      const own = known(lane)
      if (own !== undefined) queue(own)
    },

    get size() {
      return lanes.size
    },

    *all() {
      for (const lane of lanes.values())
        for (let link: Link<Work> | undefined = lane.head; link; link = link.next) yield link.work
    },
  }
}
