// The thread of an inbox: the file, called by messages. `in-thread.ts` starts it.
import { parentPort, workerData } from 'node:worker_threads'
import type { FileSettings } from '../options.ts'
import { SqliteFile } from './file.ts'
import { type ThreadReply, type ThreadCall, sentError } from './in-thread.ts'

const settings: FileSettings = workerData
const file = new SqliteFile(settings)

parentPort?.on('message', (call: ThreadCall) => void answer(call))

async function answer({ number, method, given }: ThreadCall): Promise<void> {
  const run: (...given: never[]) => Promise<unknown> = file[method]
  const answered: ThreadReply = await run.call(file, ...(given as never[])).then(
    (value) => ({ number, value }),
    (error: unknown) => ({ number, error: sentError(error) }),
  )
  parentPort?.postMessage(answered)
}
