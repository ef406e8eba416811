import { setImmediate } from 'node:timers/promises'
import { backgroundTimer, type Timer } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import type { Log } from '../../../src/base/log.ts'
import type { InboxHost } from '../../../src/inbox/inbox.ts'
import type { Damage, InboxFile, OpenedFile, SignOfLife } from './file/interface.ts'
import { budgetUsed } from './file/volume.ts'
import type { SqliteSettings } from './options.ts'

/** What the health of the file tells the inbox. */
export interface HealthListener {
  /** The file was closed because the disk fails. */
  onClosed(): void
  onReopened(found: OpenedFile): void
  /** The file takes what nobody waits for. */
  onWritable(): void
}

interface HealthParts {
  readonly file: InboxFile
  readonly settings: InboxHost
  readonly options: SqliteSettings
  readonly pending: { readonly fileBytes: number }
  readonly sign: () => SignOfLife
}

/** The wait before the next attempt on a full disk, and on a failing disk, where it doubles with each attempt. */
const fullMs = 1_000
const firstReopenMs = 1_000
const longestReopenMs = 30_000

/**
 * Knows whether the file can be used, and tries to use it again after a failure.
 *
 * - Usable: `refusal` is undefined.
 * - Full: new messages are refused. A probe each second makes room, and settled messages are written as far as they fit.
 * - Failing: the file is closed, nothing can be read, and it is opened again after a wait that doubles.
 */
export class Health {
  /** Set once by the inbox, before the file is opened. */
  on: HealthListener = { onClosed: () => {}, onReopened: () => {}, onWritable: () => {} }
  /** Why messages are refused now. */
  refusal: FleethookError | undefined
  /** Whether the file takes changes for which nobody waits. */
  isUsable = true
  readonly #parts: HealthParts
  /** Whether the file is open. */
  #isReadable = true
  #phase: 'new' | 'open' | 'closed' = 'new'
  /** Why the disk takes no messages now. */
  #failure: FleethookError | undefined
  readonly #waiting: (() => void)[] = []
  #reopenMs = firstReopenMs
  #timer: Timer | undefined
  #isStopped = false

  constructor(parts: HealthParts) {
    this.#parts = parts
    this.refusal = new FleethookError('inbox_unavailable', `The inbox ${parts.options.path} is not open.`)
  }

  /** Why every message is refused now, for health checks: an inbox that is not open yet does not refuse. */
  get refusing(): 'inbox_full' | 'inbox_unavailable' | undefined {
    const code = this.#phase === 'closed' ? 'inbox_unavailable' : this.#failure?.code
    return code === undefined || code === 'inbox_full' ? code : 'inbox_unavailable'
  }

  get isClosed(): boolean {
    return this.#phase === 'closed'
  }

  opened(): void {
    this.#phase = 'open'
    this.refusal = this.#failure
  }

  /** Returns whether the inbox was open. */
  closed(): boolean {
    const wasOpen = this.#phase === 'open'
    this.#phase = 'closed'
    this.refusal = closedError(this.#parts.options.path)
    return wasOpen
  }

  /** Reads from the file. An error there makes the inbox unavailable. */
  async read<T>(call: () => Promise<T>): Promise<T> {
    const { refusal } = this
    if (refusal !== undefined && (this.#phase === 'new' || !this.#isReadable)) throw refusal
    try {
      return await call()
    } catch (error) {
      this.failed(error)
      throw error
    }
  }

  /** Resolves when the inbox takes messages again, and when it is stopped. */
  whenUsable(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#failure === undefined || this.#isStopped) resolve()
      else this.#waiting.push(resolve)
    })
  }

  /** A call of the file failed: refuses messages and schedules another attempt. `puts`: the messages to be written. */
  failed(error: unknown, puts: number = 0): void {
    // While the file is closed, every call of it fails.
    if (this.#isStopped || !this.#isReadable) return
    const { path } = this.#parts.options
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
    if (this.#failure !== undefined) return
    const { options, pending } = this.#parts
    this.#refuse(budgetUsed(options.path, options.maxBytes, pending.fileBytes))
    this.#later(fullMs, () => this.#probe())
  }

  stop(): void {
    this.#isStopped = true
    this.#timer?.cancel()
    for (const resolve of this.#waiting.splice(0)) resolve()
  }

  /** Runs `step` every `intervalMs` while the file is usable, and at once after a `true`. Returns what ends that. */
  regularly(intervalMs: number, step: () => Promise<boolean>): () => void {
    const { clock } = this.#parts.settings
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
    const { log } = this.#parts.settings
    // What to do: The line says why. It [recovers by itself](inbox.md#when-the-disk-is-full-failing-or-slow) when the cause is gone.
    if (this.#failure?.code !== error.code) log.error(`messages are refused: ${error.message}`)
    this.#failure = error
    if (this.#phase === 'open') this.refusal = error
  }

  #recover(): void {
    const { settings, options } = this.#parts
    // What to do: Look at the `gap` events.
    if (this.#failure !== undefined) settings.log.warn(`the inbox ${options.path} takes messages again`)
    this.#failure = undefined
    if (this.#phase === 'open') this.refusal = undefined
    this.isUsable = true
    this.#reopenMs = firstReopenMs
    this.#timer?.cancel()
    this.#timer = undefined
    this.on.onWritable()
    settings.on({ type: 'available' })
    for (const resolve of this.#waiting.splice(0)) resolve()
  }

  #later(ms: number, run: () => Promise<void>): void {
    if (this.#isStopped || this.#timer !== undefined) return
    this.#timer = backgroundTimer(this.#parts.settings.clock, ms, () => {
      this.#timer = undefined
      if (!this.#isStopped) void run()
    })
  }

  async #probe(): Promise<void> {
    const { file } = this.#parts
    let hasRoom: boolean
    try {
      hasRoom = await file.probe()
    } catch (error) {
      return this.failed(error)
    }
    // The file was closed during the check, so the result says nothing about the file that is opened next.
    if (!this.#isReadable || this.#isStopped) return
    if (hasRoom) return this.#recover()
    // Settled messages may fit even when new messages do not.
    this.isUsable = true
    this.on.onWritable()
    this.#later(fullMs, () => this.#probe())
  }

  /** Closes the file and opens it again later, because the connection cannot be trusted after an error. */
  #closeFile(): void {
    const { file } = this.#parts
    this.isUsable = false
    this.#isReadable = false
    this.#timer?.cancel()
    this.#timer = undefined
    void file.close().catch(() => {})
    this.on.onClosed()
    this.#later(this.#reopenMs, () => this.#reopen())
    this.#reopenMs = Math.min(this.#reopenMs * 2, longestReopenMs)
  }

  async #reopen(): Promise<void> {
    const { file, settings, options, sign } = this.#parts
    try {
      const found = await file.open(sign())
      this.#isReadable = true
      // The inbox was closed during the call and does not know that the file is open.
      if (this.#isStopped) return await file.close()
      if (found.damage !== undefined) logDamage(settings.log, options.path, found.damage)
      this.on.onReopened(found)
      this.#recover()
    } catch (error) {
      this.#isReadable = true
      this.failed(error)
    }
  }
}

export function closedError(path: string): FleethookError {
  return new FleethookError('inbox_unavailable', `The inbox ${path} is closed.`)
}

export function logDamage(log: Log, path: string, { quarantine, fromMs }: Damage): void {
  // What to do: Check the disk, and [recover what the file held](inbox.md#a-damaged-file).
  log.error(`the file of the inbox ${path} was damaged: it was moved aside, and the inbox begins again`, {
    quarantine,
    since: new Date(fromMs).toISOString(),
  })
}
