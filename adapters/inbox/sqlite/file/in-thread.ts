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
  const thread = new FileThread(settings)
  /** Every other method is only a message. */
  const file = new Proxy(
    { close: (sign?: SignOfLife) => thread.close(sign) },
    {
      get: (own, name: keyof InboxFile) =>
        name === 'close' ? own.close : (...given: readonly unknown[]) => thread.call(name, ...given),
    },
  )
  return file as InboxFile // oxlint-disable-line no-unsafe-type-assertion -- the thread has the methods
}

class FileThread {
  readonly #settings: FileSettings
  readonly #entry: URL = threadEntry()
  readonly #pending = new Map<number, { resolve(value: unknown): void; reject(error: unknown): void }>()
  #worker: Worker | undefined
  #count = 0

  constructor(settings: FileSettings) {
    this.#settings = settings
  }

  call(method: keyof InboxFile, ...given: readonly unknown[]): Promise<unknown> {
    this.#worker ??= this.#start()
    const on = this.#worker
    return new Promise((resolve, reject) => {
      this.#count += 1
      this.#pending.set(this.#count, { resolve, reject })
      if (this.#pending.size === 1) on.ref()
      const message: ThreadCall = { number: this.#count, method, given }
      on.postMessage(message)
    })
  }

  async close(sign?: SignOfLife): Promise<void> {
    if (this.#worker === undefined) return
    const ending = this.#worker
    try {
      await this.call('close', sign)
    } finally {
      if (sign !== undefined) {
        this.#worker = undefined
        await ending.terminate()
      }
    }
  }

  #start(): Worker {
    const started = new Worker(this.#entry, { workerData: this.#settings, name: 'fleethook inbox' })
    const ended = (cause: unknown): void => {
      if (this.#worker === started) this.#worker = undefined
      this.#rejectAll(cause)
    }
    started.on('message', (answer: ThreadReply) => {
      const call = this.#pending.get(answer.number)
      this.#pending.delete(answer.number)
      // Only a pending call keeps the process alive.
      if (this.#pending.size === 0) started.unref()
      if ('error' in answer) call?.reject(receivedError(answer.error))
      else call?.resolve(answer.value)
    })
    started.on('error', ended)
    started.on('exit', ended)
    return started
  }

  #rejectAll(cause: unknown): void {
    const message = `The thread of the inbox ${this.#settings.path} ended.`
    const error = new FleethookError('inbox_unavailable', message, { cause })
    for (const { reject } of this.#pending.values()) reject(error)
    this.#pending.clear()
  }
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
