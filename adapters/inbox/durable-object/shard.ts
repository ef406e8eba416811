import type { Surroundings } from '../../../src/dispatch/work.ts'
import { detachedContext } from '../../../src/hosting/execution-context.ts'
import type { Refusal } from '../../../src/http/answers.ts'
import type { InboxMessage } from '../../../src/inbox/inbox.ts'
import type { BackendParts } from '../../../src/backend/backend.ts'
import type { Backend } from '../../../src/backend/backend.ts'
import { createEngine } from '../../../src/backend/engine.ts'
import { createObjectInbox, type ObjectInbox } from './object-inbox.ts'
import type { ObjectStorage } from './platform.ts'
import { createRestingClock } from './resting-clock.ts'
import type { Keeping } from './room.ts'

/** What one object does: keeps messages of some vehicles and takes them to their handlers. */
export interface Shard {
  readonly inbox: ObjectInbox
  readonly engine: Backend
  readonly surroundings: Surroundings
  /** Keeps messages and starts their handlers. Resolves to why they are not kept. */
  put(messages: readonly InboxMessage[]): Promise<Refusal | undefined>
  /** Goes on with what waits, until all is done or rests. */
  alarm(): Promise<void>
}

export interface ShardOptions {
  readonly parts: BackendParts
  readonly keeping: Keeping
  readonly storage: ObjectStorage
  readonly env: unknown
}

/**
 * When the platform looks after messages that were kept. Their handlers start at once, so that this is for what an object
 * leaves that ends: an alarm for each message would be a third of what the message costs.
 */
const lookAfterMs = 5_000

/** How long one alarm waits for handlers. The platform ends one at 15 minutes; the next one takes over. */
const alarmMs = 60_000

/** How long nothing has to be handed out until all is said to rest. */
const quietMs = 50

export function createShard({ parts, keeping, storage, env }: ShardOptions): Shard {
  const { settings, receipts, reports } = parts
  const clock = createRestingClock(settings.clock)
  const surroundings: Surroundings = { env, context: detachedContext }
  const inbox = createObjectInbox(storage, {
    ...keeping,
    inOrder: settings.order === 'vin',
    kept: () => lookAfter(clock.now() + lookAfterMs),
  })
  const engine = createEngine({
    ...parts,
    inbox: () => inbox,
    settings: { ...settings, ack: 'stored', clock },
    surroundings,
  })
  /** When the alarm is set for, as far as this object knows. */
  let alarmAt: number | undefined
  let inAlarm = false

  /** What waits has an alarm, or is being looked after by one that sets the next when it ends. */
  function lookAfter(atMs: number): void {
    if (inAlarm || (alarmAt !== undefined && alarmAt <= atMs)) return
    alarmAt = atMs
    storage.setAlarm(atMs).catch((error: unknown) => {
      // There is none now: what comes next sets it.
      alarmAt = undefined
      reports.dispatch.inboxFailed(error)
    })
  }

  const pause = (ms: number): Promise<void> =>
    new Promise((resolve) => {
      settings.clock.after(ms, resolve)
    })

  /** Resolves to whether all that waits rests, once that is so or the time of an alarm is over. */
  async function quiet(): Promise<boolean> {
    const endsAt = clock.now() + alarmMs
    for (let before = inbox.activity(); ;) {
      await pause(quietMs)
      const now = inbox.activity()
      if (now.handedOut === 0 && now.claims === before.claims) return true
      if (clock.now() >= endsAt) return false
      before = now
    }
  }

  return {
    inbox,
    engine,
    surroundings,

    async put(messages) {
      clock.wake()
      if (!engine.isReady && !(await engine.becomeReady())) return { error: 'inbox_unavailable' }
      return engine.take(
        messages.map((message) => receipts.arrived(message)),
        surroundings,
      )
    },

    async alarm() {
      alarmAt = undefined
      inAlarm = true
      let restsUntil: number | undefined
      try {
        clock.wake()
        // Rejects when it cannot be opened: then the platform tries the alarm again.
        await engine.open()
        if (await quiet()) restsUntil = clock.sleep()
        inbox.sweep(clock.now())
      } finally {
        inAlarm = false
        if (inbox.usage().messages > 0) lookAfter(restsUntil ?? clock.now() + lookAfterMs)
      }
    },
  }
}
