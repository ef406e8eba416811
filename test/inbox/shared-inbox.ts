import type { Claim, Inbox, InboxFactory, InboxMessage, InboxHost } from 'fleethook/extend'

/** An inbox that several processes share, as one of them sees it. The test says which messages this process has. */
export interface SharedInbox {
  readonly inbox: InboxFactory
  /** This process has these messages from now on. */
  handOver(...messages: readonly InboxMessage[]): void
  /** Another process has all messages of these vehicles from now on. */
  takeAway(...vins: readonly string[]): void
  /** Awaited before each claim, settlement and new attempt. */
  step: (what: 'claim' | 'held' | 'settle' | 'reschedule' | 'deadLetter') => Promise<void> | void
  /** Of this process: handled, or given up. */
  readonly over: readonly string[]
}

/** A `data` message. Its number is its place, and its `Odometer`. */
export function placed(vin: string, number: number, more: object = {}): InboxMessage {
  const text = JSON.stringify({ vin, createdAt: '2024-02-24T04:58:44.123Z', data: { Odometer: number, ...more } })
  const id = `00000000-0000-7000-8000-${String(number).padStart(12, '0')}`
  return { id, lane: vin, receivedAt: 0, door: 'root', kind: 'wire', text, bytes: text.length }
}

export function sharedInbox(): SharedInbox {
  const kept = new Map<string, { readonly message: InboxMessage; deliveries: number }>()
  const over: string[] = []
  let settings: InboxHost | undefined
  const shared: SharedInbox = {
    over,
    step: () => {},
    handOver(...messages) {
      for (const message of messages) kept.set(message.id, { message, deliveries: 0 })
      settings?.on({ type: 'waiting', messages })
    },
    takeAway(...vins) {
      const gone = [...kept.values()].flatMap(({ message }) => (vins.includes(message.lane) ? [message.id] : []))
      for (const id of gone) kept.delete(id)
      settings?.on({ type: 'gone', ids: gone })
    },
    inbox(given) {
      settings = given
      return inbox
    },
  }

  function end(id: string): void {
    if (kept.delete(id)) over.push(id)
  }

  const inbox: Inbox = {
    durability: 'replicated',
    open: async () => ({ waiting: nothing() }),
    put: async () => {},
    async claim(id): Promise<Claim | undefined> {
      const found = kept.get(id)
      await shared.step('claim')
      // What came back meanwhile is another delivery.
      if (found === undefined || kept.get(id) !== found) return undefined
      found.deliveries += 1
      return { message: found.message, deliveries: found.deliveries - 1, replayed: false }
    },
    shared: {
      handsOut: 'shared',
      async isStillHeld(id) {
        const found = kept.get(id)
        await shared.step('held')
        return found !== undefined && kept.get(id) === found
      },
    },
    async settle(id, { as } = { as: 'done' }) {
      const found = kept.get(id)
      if (as === 'done') end(id)
      await shared.step(as === 'done' ? 'settle' : as === 'dead' ? 'deadLetter' : 'reschedule')
      if (as === 'dead' && kept.get(id) === found) end(id)
    },
    usage: () => ({ messages: kept.size, bytes: 0 }),
    ...onlyWaiting,
  }
  return shared
}

async function* nothing(): AsyncGenerator<never> {}

/** The members of an inbox that keeps no message beyond its end. */
export const onlyWaiting: Pick<Inbox, 'refusing' | 'close'> = {
  refusing: () => undefined,
  close: async () => {},
}
