import type { InboxMessage, Listing, Selection } from './inbox.ts'

/** Whether a message matches the query. The inbox itself applies the limit. */
export function isSelected({ id, lane, receivedAt }: InboxMessage, which: Selection & Listing): boolean {
  return (
    (which.after === undefined || id > which.after) &&
    (which.before === undefined || id < which.before) &&
    (which.lane === undefined || lane === which.lane) &&
    (which.fromMs === undefined || receivedAt >= which.fromMs) &&
    (which.toMs === undefined || receivedAt < which.toMs)
  )
}
