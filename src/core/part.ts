import type { Clock } from '../base/clock.ts'
import type { Log } from '../base/log.ts'
import type { StoredVehicle } from '../inbox/vehicle-store.ts'
import type { Entry, Step } from './entry.ts'

/**
 * A part of a receiver: what the core, which claims, runs and settles messages, leaves to others. Every member is optional, and one
 * that no part has costs nothing. "Add a part" in CONTRIBUTING shows the shortest one.
 */
export interface Part {
  /** Called once for each core, before any message. */
  attach?(core: PartHost): void
  /**
   * A message is handed out for the first time in this process. Called once, in the order of its lane. When it throws, the message becomes a
   * dead letter. When its promise rejects, all parts are asked again five seconds later.
   */
  open?(entry: Entry): Opened | undefined | Promise<Opened | undefined>
  /**
   * Its handlers are about to run for the first time. `'skip'` settles it without them, and `stats().duplicates` counts it. `'wait'` asks
   * all parts again when those before it in its lane are over. Not asked about the receiver's own messages (gaps) nor about replays:
   * they are always handled.
   */
  admit?(entry: Entry): 'skip' | 'wait' | undefined
  /** A handler is about to run. Returns a gate that is closed for it. */
  gate?(entry: Entry, step: Step): Gate | undefined
  /** A handler failed with something other than `Retry` or `Discard`. With a gate the attempt does not count, and the message waits there. */
  failed?(entry: Entry, step: Step): ClosedGate | undefined
  /** A handler threw `Retry`, which is neither a success nor a failure. */
  askedToWait?(step: Step): void
  /** A handler is done. */
  succeeded?(step: Step): void
  /** What the inbox writes together with the end of the message. */
  settling?(entry: Entry): StoredVehicle | undefined
  /** For a dead letter: what a replay of the message gets as `Claim.changed`. */
  changed?(entry: Entry): string | undefined
  /** The inbox has written the end of the message, or another process has it. Not called for what a drain leaves. */
  over?(entry: Entry, outcome: Ended): void
  /** A drain of messages in memory has handled them all. May make more, and resolves to whether it did. It is called again after these. */
  last?(): Promise<boolean>
  /** A drain lets no more handlers start, and some may still run. No timer may fire any more. Can be called twice. */
  stop?(): void
  /** Getters of the context of a handler. */
  readonly context?: Readonly<Record<string, (entry: Entry) => unknown>>
  /** Getters of the context of a batch. */
  readonly batchContext?: Readonly<Record<string, (entries: readonly Entry[]) => unknown>>
}

/** The keys of the subjects beside its topic that a message is for. A key that is there twice runs the handlers twice. */
export interface Opened {
  /** Their handlers run before those of its topic: what was due before the message. */
  readonly earlier?: readonly string[]
  /** Their handlers run after those of its topic. */
  readonly keys?: readonly string[]
}

/**
 * An item of the option `parts`: a part as a value. Who does not import a part does not bundle it. `create` is called once for each core:
 * a receiver has one, and each Durable Object has its own.
 *
 * @example
 * ```ts
 * import { createReceiver } from 'fleethook'
 * import type { ReceiverPart } from 'fleethook/extend'
 *
 * // Skips what comes from vehicles of a test fleet.
 * const withoutTests: ReceiverPart = { create: () => ({ admit: ({ laneKey }) => (laneKey.includes('TEST') ? 'skip' : undefined) }) }
 *
 * createReceiver({ secret: 'a-long-random-value', parts: [withoutTests] })
 * ```
 */
export interface ReceiverPart {
  create(): Part
}

/** How a message ended: `gone` means that another process has it. */
export type Ended = 'done' | 'skipped' | 'dead' | 'gone'

/** What a part may ask of the core. */
export interface PartHost {
  readonly clock: Clock
  readonly log: Log
  /** The message may have its turn again. Does nothing unless a gate keeps it. */
  resume(entry: Entry, afterMs?: number): void
}

/** Where messages wait until a handler may run again. */
export interface Gate {
  /** Keeps a message, and later calls {@link PartHost.resume}. `false`: the gate has opened meanwhile. */
  keep(entry: Entry): boolean
}

/** A gate after a failure. */
export interface ClosedGate {
  readonly gate: Gate
  /** The failures in a row. */
  readonly failures: number
  /** The time until the handler runs again, in milliseconds. */
  readonly restMs: number
}

type Open = NonNullable<Part['open']>

/** In the order of the parts, without a promise as long as none of them returns one. */
function openedBy(opening: readonly Open[], entry: Entry, before: Required<Opened>): Opened | Promise<Opened> {
  let all = before
  for (const [at, open] of opening.entries()) {
    const found = open(entry)
    if (found instanceof Promise) return found.then((more) => openedBy(opening.slice(at + 1), entry, joined(all, more)))
    all = joined(all, found)
  }
  return all
}

const joined = ({ earlier, keys }: Required<Opened>, more: Opened = {}): Required<Opened> => ({
  earlier: [...earlier, ...(more.earlier ?? [])],
  keys: [...keys, ...(more.keys ?? [])],
})

/** The members of all parts, each as one function, or `undefined` while no part has it. */
export type Hooks = {
  readonly [
    Member in 'open' | 'admit' | 'gate' | 'failed' | 'askedToWait' | 'succeeded' | 'settling' | 'changed' | 'over'
  ]: Part[Member]
}

export function hooksOf(parts: readonly Part[]): Hooks {
  /** Calls the member of each part, or until one answers. */
  function each<Args extends unknown[], Answer>(
    memberOf: (part: Part) => ((...args: Args) => Answer) | undefined,
    endsWithAnswer: boolean = false,
  ): ((...args: Args) => Answer | undefined) | undefined {
    const members = parts.flatMap((part) => memberOf(part)?.bind(part) ?? [])
    if (members.length <= 1) return members[0]
    return (...args) => {
      for (const member of members) {
        const answer = member(...args)
        if (endsWithAnswer && answer !== undefined) return answer
      }
      return undefined
    }
  }

  const opening = parts.flatMap((part) => part.open?.bind(part) ?? [])
  const [only] = opening
  return {
    open: opening.length <= 1 ? only : (entry) => openedBy(opening, entry, { earlier: [], keys: [] }),
    admit: each((part) => part.admit, true),
    gate: each((part) => part.gate, true),
    failed: each((part) => part.failed, true),
    askedToWait: each((part) => part.askedToWait),
    succeeded: each((part) => part.succeeded),
    settling: each((part) => part.settling, true),
    changed: each((part) => part.changed, true),
    over: each((part) => part.over),
  }
}
