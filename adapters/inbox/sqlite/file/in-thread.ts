import { existsSync } from 'node:fs'
import process from 'node:process'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import { type ErrorCode, FleethookError } from '../../../../src/base/errors.ts'
import type { FileSettings } from '../options.ts'
import type { InboxFile, SignOfLife } from './interface.ts'

export interface ThreadCall {
  readonly number: number
  readonly method: keyof InboxFile
  readonly given: readonly unknown[]
}

export type ThreadReply =
  { readonly number: number; readonly value: unknown } | { readonly number: number; readonly error: SentError }

/** An error as it is sent: a thread cannot send instances of a class. */
interface SentError {
  readonly code: ErrorCode
  readonly message: string
  readonly hint: string | undefined
  readonly stack: string | undefined
}

/** The file in a thread of its own, so that a slow disk does not block the event loop. A dead thread is replaced. */
export function createInboxFileInThread(settings: FileSettings): InboxFile {
  const entry = threadEntry()
  const pendingCalls = new Map<number, { resolve(value: unknown): void; reject(error: unknown): void }>()
  let worker: Worker | undefined
  let count = 0

  function start(): Worker {
    const started = new Worker(entry, { workerData: settings, name: 'fleethook inbox' })
    const ended = (cause: unknown): void => {
      if (worker === started) worker = undefined
      const error = new FleethookError('inbox_unavailable', `The thread of the inbox ${settings.path} ended.`, {
        cause,
      })
      for (const { reject } of pendingCalls.values()) reject(error)
      pendingCalls.clear()
    }
    started.on('message', (answer: ThreadReply) => {
      const call = pendingCalls.get(answer.number)
      pendingCalls.delete(answer.number)
      // Only a pending call keeps the process alive.
      if (pendingCalls.size === 0) started.unref()
      if ('error' in answer) call?.reject(receivedError(answer.error))
      else call?.resolve(answer.value)
    })
    started.on('error', ended)
    started.on('exit', ended)
    return started
  }

  function call(method: keyof InboxFile, ...given: readonly unknown[]): Promise<unknown> {
    worker ??= start()
    const on = worker
    return new Promise((resolve, reject) => {
      count += 1
      pendingCalls.set(count, { resolve, reject })
      if (pendingCalls.size === 1) on.ref()
      const message: ThreadCall = { number: count, method, given }
      on.postMessage(message)
    })
  }

  async function close(sign?: SignOfLife): Promise<void> {
    if (worker === undefined) return
    const ending = worker
    try {
      await call('close', sign)
    } finally {
      if (sign !== undefined) {
        worker = undefined
        await ending.terminate()
      }
    }
  }

  /** Every other method is only a message. */
  const file = new Proxy(
    { close },
    {
      get: (own, name: keyof InboxFile) =>
        name === 'close' ? own.close : (...given: readonly unknown[]) => call(name, ...given),
    },
  )
  return file as InboxFile // oxlint-disable-line no-unsafe-type-assertion -- the thread has the methods
}

const isDeno = (): boolean => 'deno' in process.versions

function threadEntry(): URL {
  if (isDeno()) {
    throw new FleethookError('inbox_unsupported', 'Option `thread` of sqliteInbox is for Node and Bun.', {
      hint: 'Leave it out on Deno, where a thread makes the inbox several times slower.',
    })
  }
  const entry = threadFile()
  if (entry === undefined) {
    throw new FleethookError(
      'inbox_unsupported',
      'Option `thread` of sqliteInbox needs the file thread.js of fleethook.',
      { hint: 'A bundler left it out. Keep the package `fleethook` external, or leave out `thread`.' },
    )
  }
  return entry
}

/** Tests and Deno run the sources, and the package has compiled files. */
function threadFile(): URL | undefined {
  // In one `new URL`, bundlers would look for the file. In a CommonJS bundle there is no `import.meta.url`.
  const [, folder, extension] = /^(.*\/)[^/]*(\.[jt]s)$/.exec(import.meta.url) ?? []
  const entry = folder === undefined ? undefined : new URL(`${folder}thread${extension}`)
  return entry?.protocol === 'file:' && !existsSync(fileURLToPath(entry)) ? undefined : entry
}

export function sentError(error: unknown): SentError {
  if (error instanceof FleethookError) {
    const { code, message, hint, cause } = error
    return { code, message, hint, stack: stackOf(cause ?? error) }
  }
  const message = error instanceof Error ? `${error.name}: ${error.message}` : `a ${typeof error} was thrown`
  return { code: 'inbox_unavailable', message, hint: undefined, stack: stackOf(error) }
}

function receivedError({ code, message, hint, stack }: SentError): FleethookError {
  return new FleethookError(code, message, { hint, cause: stack })
}

function stackOf(error: unknown): string | undefined {
  return error instanceof Error ? error.stack : undefined
}
