import { FleethookError } from '../base/errors.ts'
import { checkOptions, wholeNumber } from '../base/options.ts'
import { PassingMap } from '../base/passing-map.ts'
import {
  type DeadLetter,
  type DeadLetterReason,
  done,
  type Inbox,
  type InboxFactory,
  type InboxMessage,
  type InboxSettings,
  isAbout,
  isSelected,
  listedLetter,
  type ListedMessage,
  whyNeverFit,
} from './inbox.ts'
import { bytesOfMessage, nothing, pageOf } from '../base/pages.ts'

interface Kept {
  /** Emptied at the end, because V8 keeps entries of a map for a while after they were deleted. */
  message: InboxMessage | undefined
  deliveries: number
  /** The dead letter that it was, when it is replayed. */
  readonly letter: DeadLetter | undefined
}

/**
 * Keeps messages in memory: fast, on every runtime, and gone with the process. A crash loses messages that were
 * acknowledged and not yet handled.
 *
 * Keeps the newest `deadLetters` dead letters (default 1,000), in no more bytes than `limits.pendingBytes`. Throws
 * `option_invalid` for a wrong option.
 *
 * @example
 * ```ts
 * import { createReceiver, memoryInbox } from 'fleethook'
 *
 * createReceiver({ secret: 'a-long-random-value', inbox: memoryInbox({ deadLetters: 100 }) })
 * ```
 */
export function memoryInbox(options: { readonly deadLetters?: number } = {}): InboxFactory {
  checkOptions('memoryInbox', options, { deadLetters: wholeNumber(0) })
  const { deadLetters: mostDead = 1000 } = options
  return (settings) => createMemoryInbox(settings, mostDead)
}

function createMemoryInbox(settings: InboxSettings, mostDead: number): Inbox {
  const { pendingMessages = 50_000, pendingBytes = 64 * 1_048_576 } = settings
  const kept = new PassingMap<string, Kept>()
  const dead = new Map<string, DeadLetter>()
  const vehicles = settings.vehiclesInMemory?.()
  // Made once: under overload, a stack trace for each refusal would cost more than everything else in it.
  const full = new FleethookError(
    'inbox_full',
    `The inbox is full: it may hold ${pendingMessages} messages or ${pendingBytes} bytes.`,
    { hint: 'Make the handlers faster, or raise `concurrency` or `limits`.' },
  )
  let bytes = 0
  let deadBytes = 0
  let closed = false

  /** Throws when there is no room for them. */
  function put(messages: readonly InboxMessage[]): void {
    let more = 0
    for (const message of messages) more += message.bytes
    if (closed) throw new FleethookError('inbox_unavailable', 'The inbox was closed: its receiver has been drained.')
    if (kept.size + messages.length > pendingMessages || bytes + more > pendingBytes)
      throw whyNeverFit(messages.length, more, { pendingMessages, pendingBytes }) ?? full
    bytes += more
    for (const message of messages) kept.set(message.id, { message, deliveries: 0, letter: undefined })
  }

  const settle: Inbox['settle'] = (id, outcome = done) => {
    const found = kept.get(id)
    if (found?.message === undefined) return
    if (outcome.as === 'later') {
      found.deliveries = outcome.next.deliveries ?? found.deliveries
      return
    }
    const { message } = found
    kept.delete(id)
    found.message = undefined
    bytes -= message.bytes
    if (outcome.vehicle !== undefined) vehicles?.keep(outcome.vehicle)
    if (outcome.as === 'dead') bury(message, outcome.reason)
  }

  /** The newest are kept. */
  function bury(message: InboxMessage, reason: DeadLetterReason): void {
    dead.set(message.id, { ...reason, id: message.id, message })
    deadBytes += message.bytes
    let dropped = 0
    for (const { id: oldest } of dead.values()) {
      if (dead.size <= mostDead && deadBytes <= pendingBytes) break
      removeDead(oldest)
      dropped += 1
    }
    if (dropped > 0) settings.onDropped?.(dropped)
  }

  function listed(): readonly ListedMessage[] {
    const found: ListedMessage[] = []
    for (const { message } of kept.values()) if (message !== undefined) found.push({ message, state: 'waiting' })
    for (const letter of dead.values()) found.push(listedLetter(letter))
    return found
  }

  function removeDead(id: string): boolean {
    deadBytes -= dead.get(id)?.message.bytes ?? 0
    return dead.delete(id)
  }

  return {
    durability: 'memory',

    open: async () => ({ waiting: nothing() }),

    put,

    claim(id) {
      const found = kept.get(id)
      if (found?.message === undefined) return undefined
      const { message, deliveries, letter } = found
      found.deliveries += 1
      return { message, deliveries, replayed: letter !== undefined, changed: letter?.changed }
    },

    settle,

    archive: {
      async list(what, which) {
        const isAll = what === 'all'
        const found = listed().filter(
          ({ state, message }) => (isAll || state === what) && isSelected(message, which, isAll),
        )
        const sorted = found.toSorted((a, b) => (a.message.id > b.message.id === isAll ? -1 : 1))
        return pageOf(sorted, which.limit, bytesOfMessage)
      },
      async revive(id) {
        const letter = dead.get(id)
        if (letter === undefined) return undefined
        const { message } = letter
        put([message])
        kept.set(id, { message, deliveries: 0, letter })
        removeDead(id)
        return message
      },
      discard: async (id) => removeDead(id),
    },

    async forget(vin, dryRun) {
      const own = listed().filter(({ message }) => isAbout(message, vin))
      if (!dryRun) {
        for (const { message, state } of own) void (state === 'dead' ? removeDead(message.id) : settle(message.id))
        await vehicles?.forget(vin)
      }
      const deadLetters = own.filter(({ state }) => state === 'dead').length
      const waiting = own.filter(({ state, message }) => state === 'waiting' && message.kind === 'wire').length
      return { messages: own.length, waiting, deadLetters }
    },

    usage: () => ({ messages: kept.size, bytes }),

    stats() {
      // A replayed message is older than the time that it has waited.
      let oldest: number | undefined
      for (const { message, letter } of kept.values()) {
        if (letter !== undefined) continue
        oldest = message?.receivedAt
        break
      }
      return {
        bytes: bytes + deadBytes,
        mostMessages: pendingMessages,
        used: Math.max(kept.size / pendingMessages, bytes / pendingBytes),
        deadLetters: dead.size,
        oldestWaitingMs: oldest === undefined ? undefined : Math.max(0, settings.clock.now() - oldest),
      }
    },

    refusing() {
      if (closed) return 'inbox_unavailable'
      return kept.size >= pendingMessages || bytes >= pendingBytes ? 'inbox_full' : undefined
    },

    vehicles,

    async close() {
      closed = true
    },
  }
}
