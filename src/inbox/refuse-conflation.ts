import { FleethookError } from '../base/errors.ts'
import type { InboxSettings } from './inbox.ts'

/** For inboxes that keep messages as they came. Throws `option_invalid` when the receiver wants them merged. */
export function refuseConflation({ overflow }: Pick<InboxSettings, 'overflow'>): void {
  if (overflow !== 'conflate') return
  throw new FleethookError(
    'option_invalid',
    "Option `overflow` is 'conflate', which merges messages of an inbox in memory.",
    { hint: 'Leave it out: a durable inbox keeps each message as it came, and has the room of its disk.' },
  )
}
