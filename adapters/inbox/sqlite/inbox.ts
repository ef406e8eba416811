import { FleethookError } from '../../../src/base/errors.ts'
import { seqOf } from '../../../src/inbox/delivery-id.ts'
import type { Inbox, InboxSettings, Selection, Waiting } from '../../../src/inbox/inbox.ts'
import { createClaims } from './claims.ts'
import { createDoubtful } from './doubtful.ts'
import { createGroupCommit } from './group-commit.ts'
import { createHealth } from './health.ts'
import { leftBehind } from './left-behind.ts'
import { createKeptMessages } from './kept.ts'
import { type ReadPage, selectAll } from './select.ts'
import { backgroundTimer, closedError, openWhenFree } from './opening.ts'
import { createOperators } from './operators.ts'
import type { SqliteSettings } from './options.ts'
import { rowBytes } from './retention.ts'
import { createRevival } from './revival.ts'
import { createRoom } from './room.ts'
import { rowOf } from './rows.ts'
import type { Found, Move, Store } from './store.ts'
import { tidyEvery } from './tidying.ts'
import { createSuspects } from './suspects.ts'

export function createSqliteInbox(store: Store, settings: InboxSettings, options: SqliteSettings): Inbox {
  const { clock, log } = settings
  const { path } = options
  const now = (): number => clock.now()
  const after = backgroundTimer(clock)
  const kept = createKeptMessages()
  const room = createRoom(settings)
  const pendingBytes = (): number => room.bytes + room.messages * rowBytes
  let isOpen = false
  const operators = createOperators(path, settings)
  let closed = false
  const suspects = createSuspects()
  const doubtful = createDoubtful(leave)
  /** The greatest place there is, and up to which one a damaged file may have lost messages that are still in memory. */
  let newest = -1
  let lossyUpTo = -1

  const health = createHealth({
    store,
    path,
    log,
    now,
    after,
    pendingBytes,
    letGo: operators.close,
    reopened,
    resume() {
      queue.resume()
      doubtful.tell()
    },
    mended: settings.onCapacity,
  })
  const queue = createGroupCommit({
    store,
    now,
    pendingBytes,
    committed({ onCapacity, retracted }) {
      room.give(retracted.messages, retracted.bytes)
      health.noteRoom(onCapacity)
    },
    failed: (error, puts) => health.failed(error, puts),
    isUsable: () => health.isUsable,
    inThread: options.thread,
  })

  function refusal(): FleethookError | undefined {
    if (closed) return closedError(path)
    if (!isOpen) return new FleethookError('inbox_unavailable', `The inbox ${path} is not open.`)
    return health.refusal
  }

  /** Takes the room, or throws. */
  function takeRoom(messages: number, bytes: number): void {
    const refused = refusal()
    if (refused !== undefined) throw refused
    room.take(messages, bytes)
  }

  /** Reads from the file. What fails there makes the inbox unavailable. */
  async function reading<T>(read: () => Promise<T>): Promise<T> {
    const refused = refusal()
    if (refused !== undefined && !(isOpen && health.isReadable)) throw refused
    try {
      return await read()
    } catch (error) {
      health.failed(error)
      throw error
    }
  }

  const revival = createRevival({ store, queue, room, reading, takeRoom })

  const claims = createClaims({ store, queue, kept, suspects, reading })

  async function select<T>(which: Selection, read: ReadPage<T>): Promise<readonly T[]> {
    await queue.flush()
    return selectAll(which, (part, after) => reading(() => read(part, after)))
  }

  const waiting = (): AsyncIterable<readonly Waiting[]> =>
    leftBehind({
      read: (after) => reading(() => store.waiting(after)),
      health,
      isClosed: () => closed,
      isSuspect: suspects.any,
    })

  let stopTidying = (): void => {}

  function begin(found: Found): void {
    room.set(found.messages, found.bytes)
    if (found.lastId !== undefined) newest = seqOf(found.lastId)
    if (found.unclean) suspects.begin(newest)
    isOpen = true
    stopTidying = tidyEvery({ store, health, now, after, pendingBytes })
  }

  /** What failed may have been written all the same, and what was written may be gone: what counts is what the file says. */
  function reopened({ damage, messages, bytes, holes }: Found): void {
    operators.open()
    room.set(messages, bytes)
    for (const place of queue.takeSettled()) doubtful.add({ to: 'settled', place })
    for (const move of revival.takeUndone()) doubtful.add(move)
    if (damage === undefined) return
    lossyUpTo = newest
    for (const hole of holes) if (hole.reason === 'inbox_damaged') settings.onGap?.(hole)
  }

  /** It is no longer pending, if it was. */
  async function leave(move: Move): Promise<void> {
    const bytes = await queue.move(move)
    if (bytes !== undefined) room.give(1, bytes)
  }

  return {
    durability: 'disk',

    async open() {
      const found = await openWhenFree(store, settings, options, () => closed)
      begin(found)
      operators.open()
      const { lastId, holes } = found
      return { ...(lastId === undefined ? {} : { lastId }), gaps: holes, waiting: waiting() }
    },

    async put(given) {
      let more = 0
      for (const message of given) more += message.bytes
      takeRoom(given.length, more)
      try {
        const rows = given.map(rowOf)
        newest = Math.max(newest, rows.at(-1)?.place ?? newest)
        await queue.put(rows)
        for (const [at, message] of given.entries())
          kept.add({ message, place: rows[at]?.place ?? 0, deliveries: 0, replayed: false })
      } catch (error) {
        room.give(given.length, more)
        throw error
      }
    },

    claim: claims.claim,

    async settle(id) {
      const place = seqOf(id)
      const found = kept.get(id)
      if (found !== undefined && place > lossyUpTo) {
        kept.remove(id)
        room.give(1, found.message.bytes)
        return queue.settle(place)
      }
      if (Number.isNaN(place) || queue.isSettled(place)) return
      await leave({ to: 'settled', place })
      kept.remove(id)
    },

    async reschedule(id, { attempts, notBefore, deliveries: from }) {
      const found = kept.get(id)
      if (found !== undefined) {
        if (from !== undefined) found.deliveries = from
        kept.release(found)
      }
      queue.change({
        place: seqOf(id),
        deliveries: 0,
        attempts,
        notBefore,
        ...(from === undefined ? {} : { from }),
      })
    },

    async deadLetter(id, { error, attempts, diedAt }) {
      await leave({ to: 'dead', place: seqOf(id), error, attempts, diedAt })
      kept.remove(id)
      return 0
    },

    deadLetters: (which) => select(which, store.deadLetters),

    async findDeadLetter(id) {
      const place = seqOf(id)
      if (Number.isNaN(place)) return undefined
      const { found } = await reading(() => store.deadLetters({ limit: 1 }, place - 1))
      return found[0]?.id === id ? found[0] : undefined
    },

    settled: (which) => select(which, store.settled),

    async revive(id) {
      const revived = await revival.revive(id)
      if (revived !== undefined) doubtful.forget(seqOf(id))
      return revived
    },

    async discard(id) {
      const place = seqOf(id)
      return !Number.isNaN(place) && (await queue.move({ to: 'nowhere', place })) !== undefined
    },

    usage: () => ({ messages: room.messages, bytes: room.bytes }),

    refusing() {
      const code = closed ? 'inbox_unavailable' : health.refusal?.code
      if (code !== undefined) return code === 'inbox_full' ? code : 'inbox_unavailable'
      return room.isFull ? 'inbox_full' : undefined
    },

    async close() {
      if (closed) return
      closed = true
      stopTidying()
      operators.close()
      if (!isOpen) return store.close()
      doubtful.tell()
      const clean = await queue.finish().then(
        () => true,
        () => false,
      )
      health.stop()
      await store.close(clean && health.isUsable ? now() : undefined)
    },
  }
}
