import { between, chance, type Random } from './random.ts'
import type { Messages, SimulatedMessage } from './simulated.ts'

/** Now and then a message comes once more, some seconds later. Most, not all, of the copies say that they are one. */
export function* withDuplicates(messages: Messages, random: Random): Messages {
  let copy: SimulatedMessage | undefined
  for (const message of messages) {
    if (copy && copy.at <= message.at) {
      yield copy
      copy = undefined
    }
    yield message
    if (!copy && message.event.topic !== 'connectivity' && chance(random, 0.006)) {
      const event = chance(random, 0.75)
        ? { ...message.event, meta: { ...message.event.meta, isResend: true } }
        : message.event
      copy = { at: Math.round(message.at + between(random, 800, 30_000)), event }
    }
  }
}
