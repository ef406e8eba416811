import type { Clock } from '../../../src/base/clock.ts'
import { FleethookError } from '../../../src/base/errors.ts'
import { type Log, throttled } from '../../../src/base/log.ts'
import type { Row } from './client.ts'
import { serverMs } from './server-clock.ts'

/* What Postgres promises about what it commits. A setting can change at any time, for one user, or for new connections only: so each write asks. */

/** What a session promises. */
export interface Promised {
  /** What a crash of the server can lose. `undefined`: nothing. */
  readonly weakness: string | undefined
  /** Whether a commit waits for a standby. */
  readonly isReplicated: boolean
}

const settings = ['fsync', 'full_page_writes', 'synchronous_commit'] as const
const isOff = (name: string): string => `current_setting('${name}') = 'off'`

/** A condition: this session keeps what it commits. */
export const keepsSql: string = `NOT (${settings.map(isOff).join(' OR ')})`

/** Columns of an answer: the time of the server, and what this session promises. */
export const aboutServer: string = `${serverMs}::text AS server_ms,
  CASE ${settings.map((name) => `WHEN ${isOff(name)} THEN '${name}'`).join(' ')} END AS weak,
  (current_setting('synchronous_standby_names') <> ''
    AND current_setting('synchronous_commit') <> ALL (ARRAY['local', 'off']))::text AS replicated`

/** Reads the columns of {@link aboutServer}. */
export function promisedBy(row: Row | undefined): Promised {
  const weak = row?.['weak']
  return {
    weakness: typeof weak === 'string' ? `${weak} is off` : undefined,
    isReplicated: row?.['replicated'] === 'true',
  }
}

/** At the start it is a wrong option. Later the server has changed. */
export const weakError = (weakness: string, code: 'option_invalid' | 'inbox_unavailable'): FleethookError =>
  // What to do: Turn on `fsync`, `full_page_writes` and `synchronous_commit`.
  new FleethookError(code, `In this Postgres ${weakness}: a crash can lose committed messages.`, {
    hint: 'Turn it on for the user of the inbox. allowWeak: true accepts that messages can be lost.',
  })

/** What the newest answer promised, and lines of the log when that changes. */
export class Promises {
  readonly allowsWeak: boolean
  readonly #say: ReturnType<typeof throttled>
  #now: Promised | undefined

  constructor(log: Log, clock: Clock, allowsWeak: boolean) {
    this.allowsWeak = allowsWeak
    this.#say = throttled(log, clock)
  }

  /** `undefined`: the server has not been asked yet. */
  get now(): Promised | undefined {
    return this.#now
  }

  /** Whether messages are refused, because a crash could lose them after the 2xx. */
  get refuses(): boolean {
    return this.#now?.weakness !== undefined && !this.allowsWeak
  }

  note(promised: Promised): void {
    const before = this.#now
    this.#now = promised
    if (before === undefined) return
    const { weakness, isReplicated } = promised
    if (weakness !== undefined && weakness !== before.weakness) {
      // What to do: Turn on the setting in `weakness`. With `allowWeak`, messages are still taken.
      if (this.allowsWeak) this.#say.warn('Postgres can lose what it commits', { weakness })
      // What to do: Turn on the setting in `weakness`. `allowWeak: true` accepts losses.
      else this.#say.error('Postgres can lose what it commits, and new messages are refused', { weakness })
    }
    // What to do: Nothing to do.
    if (weakness === undefined && before.weakness !== undefined) this.#say.warn('Postgres keeps what it commits again')
    // What to do: A failover can now lose the newest messages: look at `synchronous_standby_names` and `synchronous_commit`.
    if (before.isReplicated && !isReplicated) this.#say.warn('commits of Postgres no longer wait for a standby')
  }

  stop(): void {
    this.#say.stop()
  }
}
