import type { DataEvent } from '../events/event.ts'
import { mergeData } from '../wire/merge.ts'
import type { InboxMessage } from './inbox.ts'

/** Messages that became one: `into` stands where the first of them stood, the others are gone. */
export interface Merged {
  readonly into: InboxMessage
  readonly from: readonly string[]
}

/**
 * Merges waiting `data` messages that follow each other in one lane: the newest value of each field stays. Messages of
 * other topics keep their place between them, so that the order within a VIN is kept.
 */
export function conflate(waiting: Iterable<InboxMessage>): Merged[] {
  const runs: InboxMessage[][] = []
  const open = new Map<string, InboxMessage[]>()
  for (const message of waiting) {
    if (dataOf(message) === undefined) {
      open.delete(message.lane)
      continue
    }
    const run = open.get(message.lane)
    if (run !== undefined) {
      run.push(message)
      continue
    }
    const started = [message]
    open.set(message.lane, started)
    runs.push(started)
  }
  return runs.map(merge).filter((merged) => merged !== undefined)
}

function dataOf({ event }: InboxMessage): DataEvent | undefined {
  return event?.topic === 'data' ? event : undefined
}

function merge(run: readonly InboxMessage[]): Merged | undefined {
  const [first, ...rest] = run
  const [oldest, ...newer] = run.map(dataOf).filter((event) => event !== undefined)
  if (first === undefined || oldest === undefined || newer.length === 0) return undefined
  const event = mergeData([oldest, ...newer])
  return {
    into: {
      ...first,
      get text() {
        return JSON.stringify({ data: event.data, createdAt: event.createdAt, vin: event.vin })
      },
      bytes: Math.max(...run.map((message) => message.bytes)),
      event,
    },
    from: rest.map((message) => message.id),
  }
}
