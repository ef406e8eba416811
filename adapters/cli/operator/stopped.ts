import { createReplays } from '../../../src/dispatch/replay.ts'
import { systemClock } from '../../../src/clock.ts'
import { readOptions } from '../../../src/options.ts'
import { createOperatorApp } from '../../../src/operator/app.ts'
import { createReceipts } from '../../../src/receipt.ts'
import { createNormalizer } from '../../../src/wire/normalizer.ts'
import { sqliteInbox } from '../../inbox/sqlite.ts'
import { logTo } from '../service/log.ts'

/** The inbox of a receiver that does not run. */
export interface Stopped {
  readonly app: ReturnType<typeof createOperatorApp>
  close(): Promise<void>
}

/**
 * Opens the file of an inbox, as the receiver would. No handler runs: what is put back waits for the receiver. Rejects with
 * `inbox_locked` when another process has it.
 */
export async function openStopped(path: string): Promise<Stopped> {
  const nothing = (): void => {}
  const inbox = sqliteInbox({ path, waitMs: 0 })({
    pendingMessages: undefined,
    pendingBytes: undefined,
    overflow: 'refuse',
    clock: systemClock,
    log: logTo(process.stderr),
    conflated: nothing,
    failed: nothing,
    roomy: nothing,
  })
  await inbox.open()
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
