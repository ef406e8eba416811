import { setImmediate } from 'node:timers/promises'
import { backgroundTimer, type Clock, type Timer } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import type { Log } from '../../../src/base/log.ts'
import type { InboxSettings } from '../../../src/inbox/inbox.ts'
import type { Damage, InboxFile, OpenedFile, SignOfLife } from './file/interface.ts'
import { budgetUsed } from './file/retention.ts'
import type { SqliteSettings } from './options.ts'

/** Knows whether the file can be used, and tries to use it again after a failure. */
export interface Health {
  readonly refusal: FleethookError | undefined
  readonly isUsable: boolean
  readonly isReadable: boolean
  /** Resolves when the inbox takes messages again, and when it is stopped. */
  whenUsable(): Promise<void>
  /** A call of the file failed: refuses messages and schedules another attempt. `puts`: the messages to be written. */
  failed(error: unknown, puts?: number): void
  /** Called after a commit, with whether the budget has room for more. */
  noteRoom(hasRoom: boolean): void
  stop(): void
}

interface HealthOptions {
  readonly file: InboxFile
  readonly settings: InboxSettings
  readonly options: SqliteSettings
  readonly pendingBytes: () => number
  readonly sign: () => SignOfLife
  /** The file was closed because the disk fails. */
  readonly onClosed: () => void
  readonly onReopened: (found: OpenedFile) => void
  readonly onWritable: () => void
}

/** The wait before the next attempt on a full disk, and on a failing disk, where it doubles with each attempt. */
const fullMs = 1_000
const firstReopenMs = 1_000
const longestReopenMs = 30_000

export function createHealth({
  file,
  settings: { log, clock, onCapacity },
  options: { path, maxBytes },
  pendingBytes,
  sign,
  onClosed,
  onReopened,
  onWritable,
}: HealthOptions): Health {
  const waiting: (() => void)[] = []
  let reopenMs = firstReopenMs
  let timer: Timer | undefined
  let isStopped = false
  const health: { -readonly [Name in keyof Health]: Health[Name] } = {
    refusal: undefined,
    isUsable: true,
    isReadable: true,

    whenUsable: () =>
      new Promise((resolve) => {
        if (health.refusal === undefined || isStopped) resolve()
        else waiting.push(resolve)
      }),

    failed(error, puts = 0) {
      // While the file is closed, every call of it fails.
      if (isStopped || !health.isReadable) return
      const known =
        error instanceof FleethookError
          ? error
          : new FleethookError('inbox_unavailable', `The inbox ${path} failed.`, { cause: error })
      if (known.code === 'inbox_full') {
        refuse(known)
        health.isUsable = puts > 0
        return later(fullMs, probe)
      }
      refuse(
        known.code === 'inbox_unavailable'
          ? known
          : new FleethookError('inbox_unavailable', known.message, { hint: known.hint, cause: known }),
      )
      closeFile()
    },

    noteRoom(hasRoom) {
      if (hasRoom || health.refusal !== undefined) return
      refuse(budgetUsed(path, maxBytes, pendingBytes()))
      later(fullMs, probe)
    },

    stop() {
      isStopped = true
      timer?.cancel()
      for (const resolve of waiting.splice(0)) resolve()
    },
  }

  function refuse(error: FleethookError): void {
    if (health.refusal?.code !== error.code) log.error(`messages are refused: ${error.message}`)
    health.refusal = error
  }

  function recover(): void {
    if (health.refusal !== undefined) log.warn(`the inbox ${path} takes messages again`)
    health.refusal = undefined
    health.isUsable = true
    reopenMs = firstReopenMs
    timer?.cancel()
    timer = undefined
    onWritable()
    onCapacity()
    for (const resolve of waiting.splice(0)) resolve()
  }

  function later(ms: number, run: () => Promise<void>): void {
    if (isStopped || timer !== undefined) return
    timer = backgroundTimer(clock, ms, () => {
      timer = undefined
      if (!isStopped) void run()
    })
  }

  async function probe(): Promise<void> {
    let hasRoom: boolean
    try {
      hasRoom = await file.probe()
    } catch (error) {
      return health.failed(error)
    }
    // The file was closed meanwhile, so the result says nothing about the file that is opened next.
    if (!health.isReadable || isStopped) return
    if (hasRoom) return recover()
    // Settled messages may fit even when new messages do not.
    health.isUsable = true
    onWritable()
    later(fullMs, probe)
  }

  /** Closes the file and opens it again later, because the connection cannot be trusted after an error. */
  function closeFile(): void {
    health.isUsable = false
    health.isReadable = false
    timer?.cancel()
    timer = undefined
    void file.close().catch(() => {})
    onClosed()
    later(reopenMs, reopen)
    reopenMs = Math.min(reopenMs * 2, longestReopenMs)
  }

  async function reopen(): Promise<void> {
    try {
      const found = await file.open(sign())
      health.isReadable = true
      // The inbox was closed meanwhile and does not know that the file is open.
      if (isStopped) return await file.close()
      if (found.damage !== undefined) logDamage(log, path, found.damage)
      onReopened(found)
      recover()
    } catch (error) {
      health.isReadable = true
      health.failed(error)
    }
  }

  return health
}

export function logDamage(log: Log, path: string, damage: Damage): void {
  log.error(`the file of the inbox ${path} was damaged: a new file has everything that could be read`, { ...damage })
}

/** Runs `step` every `intervalMs` while the file is usable, and at once after a `true`. Returns what ends that. */
export function regularly(clock: Clock, intervalMs: number, health: Health, step: () => Promise<boolean>): () => void {
  let isStopped = false
  let timer = backgroundTimer(clock, intervalMs, () => void run())

  async function run(): Promise<void> {
    try {
      for (let more = true; more && !isStopped && health.isUsable;) {
        more = await step()
        // Other work gets its turn.
        await setImmediate()
      }
    } catch (error) {
      health.failed(error)
    }
    if (!isStopped) timer = backgroundTimer(clock, intervalMs, () => void run())
  }

  return () => {
    isStopped = true
    timer.cancel()
  }
}
