import type { Timer } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import type { Log } from '../../../src/base/log.ts'
import type { Damage } from './salvage.ts'
import type { Found, Store } from './store.ts'

/** Whether the file can be used, and what is done when it cannot. */
export interface Health {
  /** Why nothing can be put now. */
  readonly refusal: FleethookError | undefined
  /** Whether there is sense in writing at all. */
  readonly isUsable: boolean
  /** Whether the file is open, so that it can be read. */
  readonly isReadable: boolean
  /** Resolves when messages are taken again, or never will be. */
  whenMended(): Promise<void>
  /** Something failed: says so and sees to it that it is tried again. `puts`: how many messages were to be kept. */
  failed(error: unknown, puts?: number): void
  /** What a commit said of the room that is left. */
  noteRoom(isRoomy: boolean): void
  /** Tries no more. */
  stop(): void
}

export interface HealthOptions {
  readonly store: Store
  readonly path: string
  readonly log: Log
  readonly now: () => number
  readonly after: (ms: number, run: () => void) => Timer
  readonly pendingBytes: () => number
  /** The file was let go, for as long as the disk fails. */
  readonly letGo: () => void
  /** The file was opened again. */
  readonly reopened: (found: Found) => void
  /** What is still to be written may be tried again. */
  readonly resume: () => void
  /** There is room again. */
  readonly mended: () => void
}

/** How long it is left alone when the disk is full, and when it fails: the latter longer each time. */
const fullMs = 1_000
const leastMs = 1_000
const mostMs = 30_000

/** What an operator should know of a damaged file. */
export function damageText(path: string, damage: Damage): [message: string, details: Record<string, unknown>] {
  return [
    `the file of the inbox ${path} was damaged: it was put aside, and what could be read is in a new one`,
    { ...damage },
  ]
}

export function createHealth({
  store,
  path,
  log,
  now,
  after,
  pendingBytes,
  letGo,
  reopened,
  resume,
  mended,
}: HealthOptions): Health {
  let refusal: FleethookError | undefined
  let isUsable = true
  let stopped = false
  /** The file was let go, and is not open again yet: what fails meanwhile is no news. */
  let left = false
  const waiting: (() => void)[] = []
  let restMs = leastMs
  let timer: Timer | undefined

  function refuse(error: FleethookError): void {
    if (refusal?.code !== error.code) log.error(`messages are refused: ${error.message}`)
    refusal = error
  }

  function mend(): void {
    if (refusal !== undefined) log.warn(`the inbox ${path} takes messages again`)
    refusal = undefined
    isUsable = true
    restMs = leastMs
    timer?.cancel()
    timer = undefined
    resume()
    mended()
    for (const resolve of waiting.splice(0)) resolve()
  }

  function later(ms: number, run: () => Promise<void>): void {
    if (stopped || timer !== undefined) return
    timer = after(ms, () => {
      timer = undefined
      if (!stopped) void run()
    })
  }

  async function probe(): Promise<void> {
    let isRoomy: boolean
    try {
      isRoomy = await store.probe(now(), pendingBytes())
    } catch (error) {
      return failed(error)
    }
    // The file was let go meanwhile: what was found says nothing of the one that is opened next.
    if (left || stopped) return
    if (isRoomy) return mend()
    // What is settled may be written meanwhile.
    isUsable = true
    resume()
    later(fullMs, probe)
  }

  async function reopen(): Promise<void> {
    try {
      const found = await store.open(now())
      left = false
      // Nobody would let go of it any more.
      if (stopped) return await store.close()
      if (found.damage !== undefined) log.error(...damageText(path, found.damage))
      reopened(found)
      mend()
    } catch (error) {
      left = false
      failed(error)
    }
  }

  /** What a handle says after an error is not to be believed: it is closed, and the file opened anew. */
  function leave(): void {
    isUsable = false
    left = true
    timer?.cancel()
    timer = undefined
    void store.close().catch(() => {})
    letGo()
    later(restMs, reopen)
    restMs = Math.min(restMs * 2, mostMs)
  }

  function failed(error: unknown, puts = 0): void {
    if (stopped || left) return
    const known =
      error instanceof FleethookError
        ? error
        : new FleethookError('inbox_unavailable', `The inbox ${path} failed.`, { cause: error })
    const isFull = known.code === 'inbox_full'
    refuse(
      isFull || known.code === 'inbox_unavailable'
        ? known
        : new FleethookError('inbox_unavailable', known.message, { cause: known }),
    )
    if (!isFull) return leave()
    isUsable = puts > 0
    later(fullMs, probe)
  }

  return {
    get refusal() {
      return refusal
    },
    get isUsable() {
      return isUsable
    },
    get isReadable() {
      return !left
    },
    whenMended: () =>
      new Promise((resolve) => (refusal === undefined || stopped ? resolve() : void waiting.push(resolve))),
    failed,
    noteRoom(isRoomy) {
      if (isRoomy || refusal !== undefined) return
      refuse(
        new FleethookError('inbox_full', `The inbox ${path} has used up its \`maxBytes\`.`, {
          hint: 'Make the handlers faster, or raise `maxBytes`; the inbox goes on by itself.',
        }),
      )
      later(fullMs, probe)
    },
    stop() {
      stopped = true
      timer?.cancel()
      for (const resolve of waiting.splice(0)) resolve()
    },
  }
}
