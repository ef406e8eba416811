import { statSync } from 'node:fs'
import { uptime } from 'node:os'
import { setImmediate } from 'node:timers/promises'
import { elapsedMs, systemClock } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import { firstSeqAt, msOfSeq, seqOf } from '../../../src/inbox/delivery-id.ts'
import {
  type Archive,
  type Claim,
  type DeadLetter,
  type DeadLetterReason,
  done,
  type Inbox,
  type InboxGap,
  type InboxMessage,
  type InboxSettings,
  type KeptGap,
  listedLetter,
  type ListedMessage,
  mostCrashes,
  neverFits,
  type NextAttempt,
  type Outcome,
  type Waiting,
  whyNeverFit,
} from '../../../src/inbox/inbox.ts'
import { CrashSuspects } from '../crash-suspects.ts'
import { unwritable } from '../stored-row.ts'
import { bytesOfMessage, pageBytes } from '../../../src/base/pages.ts'
import type { UnopenedInbox } from '../../../src/observe/stats.ts'
import { Window } from '../../../src/inbox/window.ts'
import { createControl } from './control.ts'
import type {
  Committed,
  Dropped,
  FileFigures,
  ForgottenPage,
  InboxFile,
  Move,
  OpenedFile,
  Page,
  Adopted,
  SignOfLife,
  StoredMessage,
} from './file/interface.ts'
import { BelievedTime, clockAhead } from '../../../src/base/believed-time.ts'
import { mostNewBytes, rowBytes } from './file/retention.ts'
import { createGroupCommit } from './group-commit.ts'
import { Health } from './health.ts'
import { type CachedMessage, MessageCache } from './message-cache.ts'
import type { SqliteSettings } from './options.ts'
import { createVehicleRows } from './vehicles.ts'
import { closedError, logAdopted, logUnopened, openWhenFree } from './recovery.ts'

const tidyMs = 10_000
const checkMs = 1_000
const adoptMs = 60_000

/** What becomes of a message whose row SQLite refuses. */
const keptAnyway = {
  update: 'Its message becomes a dead letter, unless it is tried at this moment.',
  settle: 'Its message is handled, and the next process handles it again.',
  vehicle: 'The file keeps the older state of this vehicle.',
} as const

/** The receiver's half: what is pending, what is in memory, and what the file still has to write. */
export function createSqliteInbox(file: InboxFile, settings: InboxSettings, options: SqliteSettings): Inbox {
  const { clock } = settings
  const { path } = options
  const believed = new BelievedTime(clock, (aheadMs) => settings.log.warn(clockAhead, { path, aheadMs }))
  const sign = (): SignOfLife => signOfLife(settings, believed)
  const limits = { messages: settings.pendingMessages ?? Infinity, bytes: settings.pendingBytes ?? Infinity }
  // Created once: under overload, a stack trace for each refusal would cost more than everything else in it.
  const limitError = new FleethookError(
    'inbox_full',
    `The inbox is at the limits of the receiver: ${limits.messages} messages or ${limits.bytes} bytes.`,
    { hint: 'Make the handlers faster, or raise `concurrency` or `limits`.' },
  )
  const mostNew = mostNewBytes(options.maxBytes)
  const pending = { messages: 0, bytes: 0 }
  const pendingBytes = (): number => pending.bytes + pending.messages * rowBytes
  const cache = new MessageCache()
  const crashSuspects = new CrashSuspects()
  const control = createControl(path, settings)
  /** Moves that a failed commit may or may not have written. They are written again when the file is usable. */
  const uncertainMoves = new Map<number, Move>()
  /** Moves that undo revivals which a failed commit may have written. */
  const undoneRevivals: Move[] = []
  /** Dead letters that were deleted, because they had to make room or were too old, and that no line of the log has counted. */
  const unlogged = { room: 0, expired: 0 }
  let purged = 0
  let isOpen = false
  let isClosed = false
  let newestSeq = -1
  let figures: FileFigures = { oldest: undefined, deadLetters: 0 }
  let unopened: readonly UnopenedInbox[] = []
  /** The states of vehicles may lack messages that were settled after this `seq`. */
  let unappliedAfter = -1
  /** The file was damaged: messages up to this `seq` may be missing there, although they are in memory. */
  let damagedUpTo = -1
  const stops: (() => void)[] = []

  const health = new Health({
    file,
    settings,
    options,
    pendingBytes,
    sign,
    onClosed: control.close,
    onReopened,
    onWritable() {
      commits.resume()
      writeUncertainMoves()
    },
  })
  const vehicles =
    settings.keepsVehicles === true
      ? createVehicleRows({ file, clock, commit: () => commits.flush(), read: readFile, onFailure: settings.onFailure })
      : undefined
  const commits = createGroupCommit({
    file,
    believed,
    givesWay: settings.givesWay,
    pendingBytes,
    onCommitted,
    onFailed: health.failed,
    health,
    vehicles,
  })

  function onCommitted(committed: Committed): void {
    figures = committed
    if (committed.dropped !== undefined) noteDropped(committed.dropped)
    release(committed.retracted.messages, committed.retracted.bytes)
    if (!committed.hasRoom) health.noRoom()
    for (const { row, id, reason } of committed.refused ?? []) {
      // Its caller hears of a put and of a move.
      if (row === 'put' || row === 'move') continue
      settings.onFailure(new FleethookError('message_refused', reason, { hint: keptAnyway[row] }))
      if (row === 'update' && id !== undefined) settings.onRefused?.(id, reason)
    }
  }

  function noteDropped({ messages, expired, settled, fromMs, toMs }: Dropped): void {
    purged += settled
    if (messages === 0) return
    unlogged.room += messages - expired
    unlogged.expired += expired
    settings.onDropped?.(messages)
    settings.onGap?.({ reason: 'inbox_expired', fromMs, toMs, missed: messages })
  }

  function logDropped(): void {
    const { room, expired } = unlogged
    // What to do: Free space. A `gap` says when they were received.
    if (room > 0) settings.log.error(`the inbox ${path} dropped ${room} dead letters to make room for new messages`)
    if (expired > 0)
      // What to do: Look at dead letters sooner. A `gap` (`inbox_expired`) says when they were received.
      settings.log.warn('dead letters were deleted: their retention is over', { path, deadLetters: expired })
    Object.assign(unlogged, { room: 0, expired: 0 })
  }

  /** After a failed commit the file decides: some refused changes are in it, and some earlier ones may be missing. */
  function onReopened(found: OpenedFile): void {
    const { damage, messages, bytes, gaps } = found
    control.open()
    figures = found
    pending.messages = messages
    pending.bytes = bytes
    for (const seq of commits.takeSettled()) uncertainMoves.set(seq, { to: 'settled', seq })
    for (const move of undoneRevivals.splice(0)) uncertainMoves.set(move.seq, move)
    if (damage === undefined) return
    damagedUpTo = newestSeq
    vehicles?.rewrite()
    for (const gap of gaps) if (gap.reason === 'inbox_damaged') settings.onGap?.(gap)
  }

  async function tidy(): Promise<boolean> {
    const tidied = await file.tidy(sign(), pendingBytes())
    figures = tidied
    if (tidied.dropped !== undefined) noteDropped(tidied.dropped)
    logDropped()
    if (!tidied.hasRoom) health.noRoom()
    return tidied.more
  }

  /** Takes over the files of receivers that stopped while this one runs. */
  async function adopt(): Promise<boolean> {
    if (health.refusal !== undefined) return false
    const { part, unopened: found, ...newFigures } = await file.adopt(sign())
    if (part === undefined) onUnopened(found)
    else onAdopted(part, newFigures)
    return part !== undefined
  }

  /** What was taken over of a file that is only partly here. */
  let taken = { messages: 0, deadLetters: 0 }

  /** Messages of a receiver that no longer runs are in this inbox now. */
  function onAdopted(
    { path: from, waiting, bytes, deadLetters, unclean, gaps, isLast }: Adopted,
    found: FileFigures,
  ): void {
    figures = found
    pending.messages += waiting.length
    pending.bytes += bytes
    unopened = unopened.filter((other) => other.path !== from)
    taken = { messages: taken.messages + waiting.length, deadLetters: taken.deadLetters + deadLetters }
    if (isLast) {
      logAdopted(settings.log, { path: from, ...taken })
      taken = { messages: 0, deadLetters: 0 }
    }
    const newest = waiting.at(-1)
    if (newest !== undefined && unclean) crashSuspects.upTo = seqOf(newest.id)
    if (newest !== undefined)
      settings.onWaiting?.(unclean ? waiting.map((each) => ({ ...each, redelivered: true })) : waiting)
    for (const gap of gaps) settings.onGap?.(gap)
  }

  function onUnopened(found: readonly UnopenedInbox[]): void {
    for (const left of found)
      if (!unopened.some(({ path: known }) => known === left.path)) logUnopened(settings.log, left)
    unopened = [...unopened.filter((known) => !found.some((left) => left.path === known.path)), ...found]
  }

  function writeUncertainMoves(): void {
    for (const [seq, move] of uncertainMoves) {
      uncertainMoves.delete(seq)
      moveFromPending(move).catch(() => uncertainMoves.set(seq, move))
    }
  }

  function refusal(): FleethookError | undefined {
    if (isClosed) return closedError(path)
    if (!isOpen) return new FleethookError('inbox_unavailable', `The inbox ${path} is not open.`)
    return health.refusal
  }

  /** Counts messages as pending, or throws when they are refused. */
  function reserve(messages: number, bytes: number): void {
    const refused = refusal()
    if (refused !== undefined) throw refused
    // A commit would drop all that is kept for replays, to make room that is never enough.
    if (bytes + messages * rowBytes > mostNew) throw neverFits('maxBytes', options.maxBytes)
    if (pending.messages + messages > limits.messages || pending.bytes + bytes > limits.bytes)
      throw whyNeverFit(messages, bytes, settings) ?? limitError
    pending.messages += messages
    pending.bytes += bytes
  }

  function release(messages: number, bytes: number): void {
    pending.messages -= messages
    pending.bytes -= bytes
  }

  async function moveFromPending(move: Move): Promise<void> {
    const bytes = await commits.move(move)
    if (bytes !== undefined) release(1, bytes)
  }

  /** Reads from the file. An error there makes the inbox unavailable. */
  async function readFile<T>(read: () => Promise<T>): Promise<T> {
    const refused = refusal()
    if (refused !== undefined && !(isOpen && health.isReadable)) throw refused
    try {
      return await read()
    } catch (error) {
      health.failed(error)
      throw error
    }
  }

  async function findInFile(id: string, seq: number): Promise<CachedMessage | undefined> {
    if (commits.isSettling(seq)) return undefined
    if (commits.isChanging(seq)) await commits.flush()
    const found = await readFile(() => file.find(seq))
    if (found?.message.id !== id) return undefined
    return cache.get(id) ?? { ...found, seq, isClaimed: false }
  }

  /** Counts the claim, and writes it first when the message may end the process. */
  function handOut(found: CachedMessage): Claim | Promise<Claim> {
    const { message, seq, deliveries: before, replayed, replay, changed } = found
    const known = { lane: message.lane, seq, deliveries: before, replayed }
    // It is handed out for the first time, and no process has crashed since it came.
    const isNew = before === 0 && !replayed && seq > crashSuspects.upTo
    const deliveries = isNew ? 0 : crashSuspects.deliveriesOf(known)
    found.deliveries = deliveries + 1
    cache.claim(found)
    commits.update({ seq, deliveries: found.deliveries - before })
    const claim = { message, deliveries, replayed, replay, changed }
    if (isNew || !crashSuspects.mustWrite(known)) return claim
    return commits.flush().then(
      () => claim,
      (error: unknown) => {
        // A disk that fails for a while must not look like a message that kills its process.
        commits.update({ seq, deliveries: before - found.deliveries })
        found.deliveries = before
        crashSuspects.takeBack(message)
        throw error
      },
    )
  }

  /**
   * That a message which was handed out so often ran alone, and did not end its process, must be on the disk before others run, because they may end
   * it. If the commit fails, a later one writes it.
   */
  const writeEnd = (): Promise<void> => commits.flush().catch(() => {})

  function reschedule(seq: number, next: NextAttempt, found: CachedMessage | undefined): void | Promise<void> {
    const { attempts, notBefore, deliveries: deliveriesFrom, failure = null } = next
    const deliveries = found?.deliveries ?? 0
    if (found !== undefined) {
      if (deliveriesFrom !== undefined) found.deliveries = deliveriesFrom
      cache.wait(found)
    }
    const update = { seq, deliveries: 0, attempts, notBefore, failure }
    commits.update(deliveriesFrom === undefined ? update : { ...update, deliveriesFrom })
    return deliveries >= mostCrashes ? writeEnd() : undefined
  }

  /** The file has more of the message than this process knows, or keeps it as a dead letter. */
  async function settleInFile(id: string, seq: number, outcome: Exclude<Outcome, { as: 'later' }>): Promise<void> {
    if (outcome.as === 'dead') await bury(seq, outcome.reason)
    else if (Number.isNaN(seq) || commits.isSettling(seq)) return
    else await moveFromPending({ to: 'settled', seq })
    cache.delete(id)
  }

  async function bury(seq: number, reason: DeadLetterReason): Promise<void> {
    try {
      await moveFromPending({ to: 'dead', seq, ...reason })
    } catch (error) {
      if (!(error instanceof FleethookError && error.code === 'message_refused')) throw error
      settings.onFailure(error)
      // Without what it refuses: the message must not hold its vehicle forever.
      const { attempts, diedAt } = reason
      await moveFromPending({ to: 'dead', seq, error: unwritable, attempts, diedAt })
    }
  }

  /** Reads page by page from `start` on, so that other work can run in between. */
  async function* pages<T>(start: number, read: (from: number) => Promise<Page<T>>): AsyncGenerator<readonly T[]> {
    for (let next: number | undefined = start; next !== undefined;) {
      const page: Page<T> = await read(next)
      if (page.items.length > 0) yield page.items
      next = page.next
      if (next !== undefined) await setImmediate()
    }
  }

  /** At most `limit` items, until they have the bytes of a page. */
  async function readPages<T>(
    limit: number,
    start: number,
    read: (limit: number, from: number) => Promise<Page<T>>,
    bytesOf: (item: T) => number,
  ): Promise<readonly T[]> {
    await commits.flush()
    const items: T[] = []
    let bytes = 0
    for await (const page of pages(start, (from) => readFile(() => read(limit - items.length, from)))) {
      items.push(...page)
      for (const item of page) bytes += bytesOf(item)
      if (items.length >= limit || bytes >= pageBytes) break
    }
    return items
  }

  async function list(...[what, which]: Parameters<Archive['list']>): Promise<readonly ListedMessage[]> {
    const { id, after, fromMs, limit } = which
    const one = id === undefined ? Number.NaN : seqOf(id)
    const behind = after === undefined ? Number.NaN : seqOf(after)
    if (what === 'all') {
      const start = [one + 1, behind].find((seq) => !Number.isNaN(seq)) ?? Number.MAX_SAFE_INTEGER
      const found = await readPages(
        limit,
        start,
        (most, from) => file.messages({ ...which, limit: most }, from),
        bytesOfMessage,
      )
      return found.filter(({ message }) => id === undefined || message.id === id)
    }
    // The id of a message is never older than its receipt.
    const beforeFrom = fromMs === undefined ? -1 : firstSeqAt(fromMs) - 1
    const start = Math.max([one - 1, behind].find((seq) => !Number.isNaN(seq)) ?? -1, beforeFrom)
    const found: readonly ListedMessage[] =
      what === 'dead'
        ? (
            await readPages(
              limit,
              start,
              (most, from) => file.deadLetters({ ...which, limit: most }, from),
              bytesOfMessage,
            )
          ).map(listedLetter)
        : (
            await readPages(
              limit,
              start,
              (most, from) => file.settled({ ...which, limit: most }, from),
              ({ bytes }) => bytes,
            )
          ).map((message) => ({ message, state: 'settled' }))
    return found.filter(({ message }) => id === undefined || message.id === id)
  }

  async function findDeadLetter(id: string): Promise<DeadLetter | undefined> {
    const seq = seqOf(id)
    if (Number.isNaN(seq)) return undefined
    const [letter] = (await readFile(() => file.deadLetters({ limit: 1 }, seq - 1))).items
    return letter?.id === id ? letter : undefined
  }

  /** The move that undoes a revival: back to the dead letters, or to the settled messages. */
  async function moveBack(id: string, seq: number): Promise<Move> {
    const letter = await findDeadLetter(id)
    if (letter === undefined) return { to: 'settled', seq }
    const { id: _, message: __, ...reason } = letter
    return { to: 'dead', seq, ...reason }
  }

  /** Messages that the stored states of vehicles may lack. */
  async function* unapplied(): AsyncGenerator<readonly InboxMessage[]> {
    for await (const page of pages(unappliedAfter, (after) => readFile(() => file.unapplied(after)))) {
      yield page
      const last = page.at(-1)
      if (last !== undefined) vehicles?.recovered(seqOf(last.id))
    }
  }

  const isEnded = (): boolean => isClosed

  /** Messages that wait. When the file fails, it goes on where it stopped as soon as the file is usable again. */
  const waitingAfter = (seq: number): AsyncIterable<readonly Waiting[]> =>
    pages(seq, async (after) => {
      while (!isClosed) {
        try {
          const { items, next } = await readFile(() => file.waiting(after))
          return { items: items.map(recovered), next }
        } catch {
          await health.whenUsable()
        }
      }
      return { items: [], next: undefined }
    })

  /** Any of the messages of a crashed process may have been handed out, because it had no time to write that down. */
  const recovered = (waiting: Waiting): Waiting =>
    seqOf(waiting.id) <= crashSuspects.upTo ? { ...waiting, redelivered: true } : waiting

  return {
    durability: 'disk',
    keepsGaps: true,
    window: (host) => new Window(host, (after) => waitingAfter(after === undefined ? -1 : seqOf(after))),
    vehicles: vehicles?.store,

    async open(openOptions) {
      const found = await openWhenFree(file, settings, options, isEnded, () => file.open(sign(), openOptions))
      const { lastId, messages, bytes, unclean } = found
      figures = found
      if (found.believed !== undefined) believed.follow(found.believed)
      unopened = found.siblings.unopened
      if (found.vehicles !== undefined) {
        vehicles?.begin(found.vehicles)
        unappliedAfter = found.vehicles.seq
      }
      pending.messages = messages
      pending.bytes = bytes
      if (lastId !== undefined) newestSeq = seqOf(lastId)
      if (unclean) crashSuspects.upTo = newestSeq
      isOpen = true
      stops.push(health.regularly(tidyMs, tidy))
      stops.push(health.regularly(checkMs, () => file.check().then(() => false)))
      if (options.adopt !== undefined) stops.push(health.regularly(adoptMs, adopt))
      control.open()
      return {
        lastId,
        unapplied: vehicles && unapplied(),
        gaps: gapsOf(found, clock.now()),
        waiting: waitingAfter(-1),
      }
    },

    async put(messages) {
      let bytes = 0
      for (const message of messages) bytes += message.bytes
      reserve(messages.length, bytes)
      try {
        const first = seqOf(messages[0]?.id ?? '')
        const stored: StoredMessage[] = []
        for (const { id, lane, receivedAt, door, kind, text, bytes: size } of messages)
          stored.push({ seq: seqOf(id), first, id, lane, receivedAt, door, kind, text, bytes: size })
        newestSeq = Math.max(newestSeq, stored.at(-1)?.seq ?? newestSeq)
        await commits.put(stored)
        for (const [at, message] of messages.entries())
          cache.wait({ message, seq: stored[at]?.seq ?? 0, deliveries: 0, replayed: false, isClaimed: false })
      } catch (error) {
        release(messages.length, bytes)
        throw error
      }
    },

    claim(id) {
      const cached = cache.get(id)
      if (cached !== undefined) return handOut(cached)
      return findInFile(id, seqOf(id)).then((found) => found && handOut(found))
    },

    settle(id, outcome = done) {
      const found = cache.get(id)
      const seq = found?.seq ?? seqOf(id)
      if (outcome.as === 'later') return reschedule(seq, outcome.next, found)
      if (outcome.vehicle !== undefined) vehicles?.settled(seq, outcome.vehicle)
      if (outcome.as === 'dead' || found === undefined || seq <= damagedUpTo) return settleInFile(id, seq, outcome)
      cache.delete(id)
      release(1, found.message.bytes)
      commits.settle(seq)
      return found.deliveries >= mostCrashes ? writeEnd() : undefined
    },

    archive: {
      list,

      async revive(id) {
        const seq = seqOf(id)
        if (Number.isNaN(seq)) return undefined
        if (commits.isChanging(seq)) await commits.flush()
        const message = await readFile(() => file.message(seq))
        if (message?.id !== id) return undefined
        const back = await moveBack(id, seq)
        reserve(1, message.bytes)
        let revived: number | undefined
        try {
          revived = await commits.move({ to: 'pending', seq })
        } catch (error) {
          // A full disk has written nothing.
          if (!(error instanceof FleethookError && error.code === 'inbox_full')) undoneRevivals.push(back)
          throw error
        } finally {
          if (revived === undefined) release(1, message.bytes)
        }
        if (revived === undefined) return undefined
        uncertainMoves.delete(seq)
        return { id, lane: message.lane, kind: message.kind }
      },

      async discard(id) {
        const seq = seqOf(id)
        return !Number.isNaN(seq) && (await commits.move({ to: 'deleted', seq })) !== undefined
      },
    },

    async forget(vin, dryRun) {
      // What is still to be written of its messages must not come after.
      await commits.flush()
      const erased = { messages: 0, waiting: 0, deadLetters: 0 }
      for (let after: number | undefined = -1; after !== undefined;) {
        const part: ForgottenPage = await readFile(() => file.forget(vin, after ?? -1, dryRun))
        erased.messages += part.messages
        erased.waiting += part.waiting
        erased.deadLetters += part.deadLetters
        if (!dryRun) {
          figures = { oldest: part.oldest, deadLetters: figures.deadLetters - part.deadLetters }
          release(part.pending.messages, part.pending.bytes)
        }
        after = part.next
        await setImmediate()
      }
      if (dryRun) return erased
      cache.forget(vin)
      await vehicles?.store.forget(vin)
      while (await readFile(() => file.scrub(vin))) await setImmediate()
      return erased
    },

    usage: () => ({ ...pending }),

    refusing() {
      const code = isClosed ? 'inbox_unavailable' : health.refusal?.code
      if (code !== undefined) return code === 'inbox_full' ? code : 'inbox_unavailable'
      return pending.messages >= limits.messages || pending.bytes >= limits.bytes ? 'inbox_full' : undefined
    },

    stats() {
      const { oldest, deadLetters } = figures
      return {
        bytes: bytesOf(path) + bytesOf(`${path}-wal`),
        deadLetters,
        commitMs: commits.durations(),
        unopened,
        purged,
        oldestWaitingMs: oldest === undefined ? undefined : Math.max(0, clock.now() - msOfSeq(oldest)),
      }
    },

    async close(stoppedAtMs = clock.now()) {
      if (isClosed) return
      isClosed = true
      for (const stop of stops) stop()
      control.close()
      if (!isOpen) return file.close()
      writeUncertainMoves()
      const isComplete = await commits.finish().then(
        () => true,
        () => false,
      )
      health.stop()
      logDropped()
      await file.close(isComplete && health.isUsable ? lastSign(sign(), stoppedAtMs) : undefined)
    },
  }
}

/** The gaps that a file reports, and a gap for the time in which a receiver that keeps no states of vehicles used it. */
function gapsOf({ gaps, vehicles }: OpenedFile, nowMs: number): readonly InboxGap[] {
  if (vehicles?.staleFromMs === undefined) return gaps
  return [...gaps, { reason: 'stopped', fromMs: Math.min(vehicles.staleFromMs, nowMs) }]
}

/**
 * The sign of life of a receiver that took no messages from `atMs` on, with a gap for the stop: the kernel resets
 * connections that it had given to this process. The next start replaces that gap.
 */
function lastSign(sign: SignOfLife, atMs: number): SignOfLife {
  const { nowMs, uptimeMs, gaps = [] } = sign
  const agoMs = Math.max(0, nowMs - atMs)
  const fromMs = nowMs - agoMs
  const stop: KeptGap = { reason: 'stopped', fromMs, toMs: nowMs, missed: 0 }
  const uptimeThenMs = uptimeMs === undefined ? undefined : uptimeMs - agoMs
  return { ...sign, nowMs: fromMs, uptimeMs: uptimeThenMs, gaps: [...gaps, stop] }
}

function signOfLife(settings: InboxSettings, believed: BelievedTime): SignOfLife {
  const { clock, openGaps, keepsVehicles, files, givesWay: isBranch } = settings
  const uptimeMs = clock === systemClock ? machineUptimeMs() : Math.floor(elapsedMs(clock))
  believed.now()
  const gaps = openGaps?.()
  return { nowMs: clock.now(), believed: believed.state, uptimeMs, gaps, keepsVehicles, files: files?.(), isBranch }
}

/** Deno needs a permission for it. */
function machineUptimeMs(): number | undefined {
  try {
    return Math.floor(uptime() * 1_000)
  } catch {
    return undefined
  }
}

function bytesOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0
}
