// What runs in the thread of an inbox: the store itself, which is told what to do by messages. See thread-store.ts.
import { parentPort, workerData } from 'node:worker_threads'
import { createFileStore } from './file-store.ts'
import type { FileSettings } from './options.ts'
import { type Call, type Outcome, sentError } from './thread-messages.ts'

const settings: FileSettings = workerData
const store = createFileStore(settings)

parentPort?.on('message', (call: Call) => void answer(call))

async function answer({ number, method, given }: Call): Promise<void> {
  const run: (...given: never[]) => Promise<unknown> = store[method]
  const outcome: Outcome = await run(...(given as never[])).then(
    (value) => ({ number, value }),
    (error: unknown) => ({ number, error: sentError(error) }),
  )
  parentPort?.postMessage(outcome)
}
