import type { Condition } from '../vehicles/edge.ts'

/**
 * True while a vehicle is online, by its last `state` and `connectivity` messages: it can be asleep or without a connection. Until the first one it
 * is neither true nor false.
 *
 * @example
 * ```ts
 * import { all, isOnline, not, is, starts } from 'fleethook/when'
 *
 * export const lostOnTheRoad = starts(all(is('Gear', 'D'), not(isOnline()))).after({ minutes: 30 })
 * ```
 */
export function isOnline(): Condition {
  return {
    name: 'isOnline()',
    fields: [],
    online: true,
    test: ({ online, isOnlineCertain }) => (isOnlineCertain ? online : undefined),
  }
}

/**
 * True while the last `state` message of a vehicle says `asleep`. A vehicle that is online is not asleep, also when it never sent one.
 *
 * @example
 * ```ts
 * import { isAsleep, starts } from 'fleethook/when'
 *
 * export const asleepForDays = starts(isAsleep()).after({ days: 3 })
 * ```
 */
export function isAsleep(): Condition {
  return {
    name: 'isAsleep()',
    fields: [],
    online: true,
    test({ online, state, isOnlineCertain }) {
      if (!isOnlineCertain) return undefined
      return state === undefined ? (online === true ? false : undefined) : state === 'asleep'
    },
  }
}
