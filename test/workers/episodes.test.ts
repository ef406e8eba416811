/* Each row of the semantics of episodes, in Durable Objects: their class, their storage, their alarms, and how a Worker asks them. */
import type { Receiver } from 'fleethook'
import { durableObjectInbox, type InboxObject, inboxObject, type ObjectNamespace } from 'fleethook/inbox/durable-object'
import { episodeRows } from '../when/episodes-rows.ts'
import type { Place } from '../when/episodes-scene.ts'
import type { SteppingClock } from '../when/stepping.ts'
import { objectStorage } from './object-storage.ts'

/** One object. Its alarm rings on the clock of the test, also when the platform has ended the object meanwhile. */
function objectPlace(): Place {
  let object: InboxObject | undefined
  let clock: SteppingClock | undefined
  let ringsAt = Infinity
  let calls = 0
  /** The platform starts an object for a call or an alarm. */
  let isAwake = false
  const storage = objectStorage(async (atMs) => {
    ringsAt = atMs
    clock?.after(Math.max(0, atMs - clock.now()), () => {
      if (ringsAt !== atMs) return
      ringsAt = Infinity
      isAwake = true
      void object?.alarm()
    })
  })
  const fetch = async (url: string, init: RequestInit): Promise<Response | undefined> => {
    calls += 1
    isAwake = true
    try {
      return await object?.fetch(new Request(url, init))
    } finally {
      calls -= 1
    }
  }
  const namespace = { idFromName: (name: string) => ({ name }), get: () => ({ fetch }) } as never as ObjectNamespace
  const waiting = (): number => {
    const { sql } = storage
    const isThere = sql.exec("SELECT 1 FROM sqlite_schema WHERE name = 'fleethook_messages'").toArray().length > 0
    return isThere ? sql.exec('SELECT 1 FROM fleethook_messages WHERE state = 0').toArray().length : 0
  }
  return {
    next: () => durableObjectInbox({ objects: () => namespace, shards: 1 }),
    host(receiver: Receiver, given) {
      clock = given
      isAwake = false
      object = new (inboxObject(receiver))({ storage }, {})
      // The alarm is kept by the platform.
      if (ringsAt < Infinity) void storage.setAlarm(ringsAt)
    },
    pending: () => calls + (isAwake ? waiting() : 0),
  }
}

episodeRows('in Durable Objects', objectPlace, true)
