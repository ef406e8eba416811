import type { ReceiverPart } from 'fleethook/extend'

/** Handles at most `limit` messages of each vehicle in a minute, and skips the others. */
export function limited(limit: number): ReceiverPart {
  return {
    create() {
      const seen = new Map<string, Map<string, number>>()
      let minute = 0
      return {
        admit({ id, lane, receivedAt }) {
          const now = Math.floor(receivedAt / 60_000)
          if (now > minute) seen.clear()
          minute = Math.max(minute, now)
          const places = seen.get(lane) ?? new Map<string, number>()
          // It is asked again when another part said 'wait', so each message keeps its place.
          const place = places.get(id) ?? places.size
          seen.set(lane, places.set(id, place))
          if (place === limit)
            console.warn(`${lane} sent more than ${limit} messages in a minute: the others are skipped`)
          return place < limit ? undefined : 'skip'
        },
      }
    },
  }
}
