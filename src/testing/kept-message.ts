import { systemClock } from '../base/clock.ts'
import {
  archiveOf,
  type DeadLetter,
  type DeadLetterReason,
  type Inbox,
  type InboxHost,
  type InboxMessage,
  type Selection,
} from '../inbox/inbox.ts'

/** Tests make ids as a receiver does. Inboxes know the place of a message by its id. */
export { DeliveryIds, firstSeqAt, msOfSeq, seqOf } from '../inbox/delivery-id.ts'
export { archiveOf } from '../inbox/inbox.ts'
export { readersInMemory } from '../inbox/memory-readers.ts'
export { memoryVehicles } from '../vehicles/recent.ts'

const silent = (): void => {}

/** The settings of an inbox that has capacity for every message of a check. */
export const usualSettings: InboxHost = {
  limits: { pendingMessages: 1000, pendingBytes: 1_000_000 },
  read: () => {
    throw new Error('The checks read no message.')
  },
  clock: systemClock,
  log: { debug: silent, info: silent, warn: silent, error: silent },
  on: silent,
}

export const reason: DeadLetterReason = { error: 'Error: no', attempts: 5, diedAt: 1_700_000_000_000 }

/** A UUIDv7 whose time is the number, so that ids sort like their numbers. */
export function id(n: number): string {
  return `018dd9c4-${(0x3fd4 + n).toString(16).padStart(4, '0')}-7000-8000-000000000000`
}

export function message(n: number, bytes = 64): InboxMessage {
  const text = JSON.stringify({ state: 'online', vin: 'VIN', createdAt: '2024-02-24T04:58:44Z', n })
  return { id: id(n), lane: 'VIN', receivedAt: 1_700_000_000_000 + n, door: 'root', kind: 'wire', text, bytes }
}

export function withoutEvent({ event: _, ...kept }: InboxMessage): object {
  return kept
}

/** The dead letters of an inbox with an archive. */
export async function lettersIn(inbox: Pick<Inbox, 'archive'>, which: Selection): Promise<readonly DeadLetter[]> {
  const found = (await archiveOf(inbox)?.list('dead', which)) ?? []
  return found.map(({ message: dead, reason: why = reason }) => ({ id: dead.id, message: dead, ...why }))
}

/** The handled messages that an inbox with an archive still keeps. */
export async function settledIn(inbox: Pick<Inbox, 'archive'>, which: Selection): Promise<readonly InboxMessage[]> {
  const found = (await archiveOf(inbox)?.list('settled', which)) ?? []
  return found.map(({ message: settled }) => settled)
}
