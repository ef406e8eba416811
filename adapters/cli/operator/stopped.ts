import { createReplays } from '../../../src/backend/replay.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { readOptions } from '../../../src/receiver/options.ts'
import { createOperatorApp } from '../../../src/operator/app.ts'
import { createReceipts } from '../../../src/inbox/receipts.ts'
import { createNormalizer } from '../../../src/wire/normalizer.ts'
import { loadSqlite } from '../../inbox/sqlite/file/database.ts'
import { createInboxFile } from '../../inbox/sqlite/file/file.ts'
import { createSqliteInbox } from '../../inbox/sqlite/inbox.ts'
import { readSqliteOptions } from '../../inbox/sqlite/options.ts'
import { logTo } from '../service/log.ts'

/** The inbox of a receiver that does not run. */
export interface Stopped {
  readonly app: ReturnType<typeof createOperatorApp>
  close(): Promise<void>
}

/**
 * Opens the file of an inbox, as the receiver would. No handler runs: what is put back waits for the receiver. Rejects with
 * `inbox_locked` when another process has it. What the receiver is still to be told of, such as a crash, stays in the file.
 */
export async function openStopped(path: string): Promise<Stopped> {
  const nothing = (): void => {}
  loadSqlite()
  const settings = readSqliteOptions({ path, waitMs: 0 })
  const file = createInboxFile(settings)
  let isTold = true
  // Closing well says that everybody was told, and here is nobody to tell.
  const reopenable = { ...file, close: (nowMs?: number) => file.close(isTold ? nowMs : undefined) }
  const inboxSettings = {
    pendingMessages: undefined,
    pendingBytes: undefined,
    overflow: 'refuse' as const,
    clock: systemClock,
    log: logTo(process.stderr),
    onConflated: nothing,
    onFailure: nothing,
    onCapacity: nothing,
    onGap: () => {
      isTold = false
    },
  }
  const inbox = createSqliteInbox(reopenable, inboxSettings, settings)
  const { gaps = [] } = await inbox.open()
  if (gaps.length > 0) isTold = false
  // With the defaults of a receiver: a pinned format or fields of its own are not known here, and change what is shown only.
  const normalizer = createNormalizer({ ...readOptions({ secret: false }), onDrift: nothing })
  const { reread } = createReceipts(normalizer, systemClock)
  const replays = createReplays({
    inbox,
    open: async () => {},
    read: reread,
    isDraining: () => false,
    revived: async () => {},
  })
  return { app: createOperatorApp(replays), close: () => inbox.close() }
}
