import { existsSync } from 'node:fs'
import process from 'node:process'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'
import { FleethookError } from '../../../src/base/errors.ts'
import type { FileSettings } from './options.ts'
import type { Store } from './store.ts'
import { type Call, type Outcome, receivedError } from './thread-messages.ts'

interface Waiter {
  resolve(value: unknown): void
  reject(error: unknown): void
}

/**
 * The store in a thread of its own: a slow disk stalls that, and the event loop goes on. The thread is started by the first call
 * and ends with `close`; one that died is started anew by `open`.
 */
export function createThreadStore(settings: FileSettings): Store {
  const entry = findEntry()
  const waiters = new Map<number, Waiter>()
  let worker: Worker | undefined
  let count = 0

  function start(): Worker {
    const started = new Worker(entry, { workerData: settings, name: 'fleethook inbox' })
    const died = (cause: unknown): void => {
      if (worker === started) worker = undefined
      const error = new FleethookError('inbox_unavailable', `The thread of the inbox ${settings.path} ended.`, {
        cause,
      })
      for (const { reject } of waiters.values()) reject(error)
      waiters.clear()
    }
    started.on('message', (outcome: Outcome) => {
      const waiter = waiters.get(outcome.number)
      waiters.delete(outcome.number)
      // Only what somebody waits for keeps the process alive.
      if (waiters.size === 0) started.unref()
      if ('error' in outcome) waiter?.reject(receivedError(outcome.error))
      else waiter?.resolve(outcome.value)
    })
    started.on('error', died)
    started.on('exit', died)
    return started
  }

  function call<Method extends keyof Store>(
    method: Method,
    ...given: Parameters<Store[Method]>
  ): ReturnType<Store[Method]> {
    worker ??= start()
    const on = worker
    const called = new Promise((resolve, reject) => {
      count += 1
      waiters.set(count, { resolve, reject })
      if (waiters.size === 1) on.ref()
      const message: Call = { number: count, method, given }
      on.postMessage(message)
    })
    return called as ReturnType<Store[Method]>
  }

  return {
    open: (nowMs) => call('open', nowMs),
    waiting: (after) => call('waiting', after),
    commit: (batch) => call('commit', batch),
    find: (place) => call('find', place),
    message: (place) => call('message', place),
    deadLetters: (which, after) => call('deadLetters', which, after),
    settled: (which, after) => call('settled', which, after),
    tidy: (nowMs, pendingBytes) => call('tidy', nowMs, pendingBytes),
    probe: (nowMs, pendingBytes) => call('probe', nowMs, pendingBytes),
    async close(nowMs) {
      if (worker === undefined) return
      const ending = worker
      try {
        await (nowMs === undefined ? call('close') : call('close', nowMs))
      } finally {
        if (nowMs !== undefined) {
          worker = undefined
          await ending.terminate()
        }
      }
    },
  }
}

/** The sources run as they are in tests and on Deno; the package holds what was made of them. */
function findEntry(): URL {
  if ('deno' in process.versions) {
    throw new FleethookError('inbox_unsupported', 'Option `thread` of sqliteInbox is for Node and Bun.', {
      hint: 'Leave it out on Deno, where a thread is several times slower than none.',
    })
  }
  const entry = import.meta.url.endsWith('.ts')
    ? new URL('./thread.ts', import.meta.url)
    : new URL('./thread.js', import.meta.url)
  if (entry.protocol === 'file:' && !existsSync(fileURLToPath(entry))) {
    throw new FleethookError(
      'inbox_unsupported',
      'Option `thread` of sqliteInbox needs the file thread.js of fleethook.',
      {
        hint: 'A bundler has left it out: keep the package `fleethook` out of the bundle (external), or leave `thread` out.',
      },
    )
  }
  return entry
}
