/** Which messages an object is asked for: what {@link MessageSelection} says, as JSON. */
import type { MessageSelection } from '../../../src/inbox/dead-letters.ts'
export interface AskedFor extends Omit<MessageSelection, 'from' | 'to'> {
  readonly id?: string
  /** Milliseconds since the epoch. */
  readonly fromMs?: number
  readonly toMs?: number
  readonly dryRun?: boolean | undefined
}

export function askedFor(which: string | (MessageSelection & { readonly dryRun?: boolean | undefined })): AskedFor {
  if (typeof which === 'string') return { id: which }
  const { from, to, ...others } = which
  return {
    ...others,
    ...(from === undefined ? {} : { fromMs: from.getTime() }),
    ...(to === undefined ? {} : { toMs: to.getTime() }),
  }
}

/** Its inverse, where there is no id. */
export function meant({
  fromMs,
  toMs,
  id: _,
  ...others
}: AskedFor): MessageSelection & { readonly dryRun?: boolean | undefined } {
  return {
    ...others,
    ...(fromMs === undefined ? {} : { from: new Date(fromMs) }),
    ...(toMs === undefined ? {} : { to: new Date(toMs) }),
  }
}
