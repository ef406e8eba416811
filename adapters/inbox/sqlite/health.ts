import { setImmediate } from 'node:timers/promises'
import { backgroundTimer, type Timer } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import type { Log } from '../../../src/base/log.ts'
import type { InboxSettings } from '../../../src/inbox/inbox.ts'
import type { Damage, InboxFile, OpenedFile, SignOfLife } from './file/interface.ts'
import { budgetUsed } from './file/retention.ts'
import type { SqliteSettings } from './options.ts'

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

/** Knows whether the file can be used, and tries to use it again after a failure. */
export class Health {
  /** Why messages are refused now. */
  refusal: FleethookError | undefined
  isUsable = true
  /** Whether the file is open. */
  isReadable = true
  readonly #options: HealthOptions
  readonly #waiting: (() => void)[] = []
  #reopenMs = firstReopenMs
  #timer: Timer | undefined
  #isStopped = false

  constructor(options: HealthOptions) {
    this.#options = options
  }

  /** Resolves when the inbox takes messages again, and when it is stopped. */
  whenUsable(): Promise<void> {
    return new Promise((resolve) => {
      if (this.refusal === undefined || this.#isStopped) resolve()
      else this.#waiting.push(resolve)
    })
  }

  /** A call of the file failed: refuses messages and schedules another attempt. `puts`: the messages to be written. */
  readonly failed = (error: unknown, puts: number = 0): void => {
    // While the file is closed, every call of it fails.
    if (this.#isStopped || !this.isReadable) return
    const { path } = this.#options.options
    const known =
      error instanceof FleethookError
        ? error
        : new FleethookError('inbox_unavailable', `The inbox ${path} failed.`, { cause: error })
    if (known.code === 'inbox_full') {
      this.#refuse(known)
      this.isUsable = puts > 0
      return this.#later(fullMs, () => this.#probe())
    }
    this.#refuse(
      known.code === 'inbox_unavailable'
        ? known
        : new FleethookError('inbox_unavailable', known.message, { hint: known.hint, cause: known }),
    )
    this.#closeFile()
  }

  /** The budget has no room for more. */
  noRoom(): void {
    if (this.refusal !== undefined) return
    const { options, pendingBytes } = this.#options
    this.#refuse(budgetUsed(options.path, options.maxBytes, pendingBytes()))
    this.#later(fullMs, () => this.#probe())
  }

  stop(): void {
    this.#isStopped = true
    this.#timer?.cancel()
    for (const resolve of this.#waiting.splice(0)) resolve()
  }

  /** Runs `step` every `intervalMs` while the file is usable, and at once after a `true`. Returns what ends that. */
  regularly(intervalMs: number, step: () => Promise<boolean>): () => void {
    const { clock } = this.#options.settings
    let isStopped = false
    const run = async (): Promise<void> => {
      try {
        for (let more = true; more && !isStopped && this.isUsable;) {
          more = await step()
          // Other work gets its turn.
          await setImmediate()
        }
      } catch (error) {
        this.failed(error)
      }
      if (!isStopped) timer = backgroundTimer(clock, intervalMs, () => void run())
    }
    let timer = backgroundTimer(clock, intervalMs, () => void run())
    return () => {
      isStopped = true
      timer.cancel()
    }
  }

  #refuse(error: FleethookError): void {
    const { log } = this.#options.settings
    // What to do: The line says why. It [recovers by itself](inbox.md#when-the-disk-is-full-failing-or-slow) when the cause is gone.
    if (this.refusal?.code !== error.code) log.error(`messages are refused: ${error.message}`)
    this.refusal = error
  }

  #recover(): void {
    const { settings, options, onWritable } = this.#options
    // What to do: Look at the `gap` events.
    if (this.refusal !== undefined) settings.log.warn(`the inbox ${options.path} takes messages again`)
    this.refusal = undefined
    this.isUsable = true
    this.#reopenMs = firstReopenMs
    this.#timer?.cancel()
    this.#timer = undefined
    onWritable()
    settings.onCapacity()
    for (const resolve of this.#waiting.splice(0)) resolve()
  }

  #later(ms: number, run: () => Promise<void>): void {
    if (this.#isStopped || this.#timer !== undefined) return
    this.#timer = backgroundTimer(this.#options.settings.clock, ms, () => {
      this.#timer = undefined
      if (!this.#isStopped) void run()
    })
  }

  async #probe(): Promise<void> {
    const { file, onWritable } = this.#options
    let hasRoom: boolean
    try {
      hasRoom = await file.probe()
    } catch (error) {
      return this.failed(error)
    }
    // The file was closed meanwhile, so the result says nothing about the file that is opened next.
    if (!this.isReadable || this.#isStopped) return
    if (hasRoom) return this.#recover()
    // Settled messages may fit even when new messages do not.
    this.isUsable = true
    onWritable()
    this.#later(fullMs, () => this.#probe())
  }

  /** Closes the file and opens it again later, because the connection cannot be trusted after an error. */
  #closeFile(): void {
    const { file, onClosed } = this.#options
    this.isUsable = false
    this.isReadable = false
    this.#timer?.cancel()
    this.#timer = undefined
    void file.close().catch(() => {})
    onClosed()
    this.#later(this.#reopenMs, () => this.#reopen())
    this.#reopenMs = Math.min(this.#reopenMs * 2, longestReopenMs)
  }

  async #reopen(): Promise<void> {
    const { file, settings, options, sign, onReopened } = this.#options
    try {
      const found = await file.open(sign())
      this.isReadable = true
      // The inbox was closed meanwhile and does not know that the file is open.
      if (this.#isStopped) return await file.close()
      if (found.damage !== undefined) logDamage(settings.log, options.path, found.damage)
      onReopened(found)
      this.#recover()
    } catch (error) {
      this.isReadable = true
      this.failed(error)
    }
  }
}

export function logDamage(log: Log, path: string, damage: Damage): void {
  // What to do: Check the disk. The damaged file stays beside the inbox.
  log.error(`the file of the inbox ${path} was damaged: a new file has everything that could be read`, { ...damage })
}
