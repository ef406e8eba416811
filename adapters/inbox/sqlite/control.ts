import { createHash } from 'node:crypto'
import { lstatSync, mkdirSync, rmSync } from 'node:fs'
import type { RequestListener, Server } from 'node:http'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { FleethookError } from '../../../src/base/errors.ts'
import type { InboxHost } from '../../../src/inbox/inbox.ts'
import { Feed } from '../../../src/operator/feed.ts'
import { Samples } from '../../../src/operator/samples.ts'
import type { OperatorApi } from '../../../src/observe/observer.ts'
import type { OperatorAppOptions } from '../../../src/operator/app.ts'
import { http } from '../../node-http.ts'

/** The socket beside the file, through which operators on this machine, as the same user, reach the process that has the file. */
interface Control {
  open(): void
  /** Called while the disk fails, too: an open socket would prevent people from repairing or remounting it. */
  close(): void
}

/** The longest path of a socket that works on every system, in bytes. */
const longestPath = 100

/** Beside the file, or, when that path is too long, in a folder of its own among the temporary files. */
export function controlPath(path: string): string {
  const whole = resolve(path)
  const name = `fleethook-${createHash('sha256').update(whole).digest('hex').slice(0, 16)}`
  if (process.platform === 'win32') return `\\\\.\\pipe\\${name}`
  const beside = `${whole}.sock`
  return Buffer.byteLength(beside) <= longestPath ? beside : join(tmpdir(), name, 'control.sock')
}

/** The receiver also runs without a socket. The log then says that operators cannot reach it. */
export function createControl(path: string, settings: InboxHost): Control {
  let server: Server | undefined
  let feed: Feed | undefined
  let samples: Samples | undefined
  let sampling: NodeJS.Timeout | undefined
  return {
    open() {
      const { log } = settings
      const operator = settings.receiver?.operator?.()
      if (operator === undefined) return
      const socket = controlPath(path)
      const failed = (error: unknown): void =>
        // What to do: The socket beside the file could not be opened: check the folder's permissions, or use `--url`.
        log.warn('operators cannot reach this receiver through its inbox', { socket, error: nameOf(error) })
      // Starts before anybody looks, because what went wrong until then is worth showing.
      feed ??= operator.observe && new Feed(operator.observe)
      samples ??= operator.stats && new Samples(operator.stats, operator.observe)
      sampling = setInterval(() => samples?.take(), Samples.stepMs).unref()
      let listener: Promise<RequestListener> | undefined
      server = http.createServer((incoming, outgoing) => {
        listener ??= createListener(operator, { feed, samples })
        listener
          .then((answer) => answer(incoming, outgoing))
          .catch((error: unknown) => {
            failed(error)
            outgoing.destroy()
          })
      })
      server.on('error', failed)
      try {
        if (socket !== `${resolve(path)}.sock`) makeFolder(dirname(socket))
        listen(server, socket)
        server.unref()
      } catch (error) {
        failed(error)
      }
    },
    close() {
      clearInterval(sampling)
      server?.close()
      server?.closeAllConnections()
      server = undefined
    },
  }
}

/** Loaded with the first request of an operator, which most processes never get. */
async function createListener(operator: OperatorApi, shown: OperatorAppOptions): Promise<RequestListener> {
  const [{ getRequestListener }, { createOperatorApp }] = await Promise.all([
    import('@hono/node-server'),
    import('../../../src/operator/app.ts'),
  ])
  const listener = getRequestListener(createOperatorApp(operator, shown).fetch, {
    overrideGlobalObjects: false,
    hostname: 'localhost',
  })
  return (incoming, outgoing) => void listener(incoming, outgoing)
}

function nameOf(error: unknown): string {
  if (!(error instanceof Error)) return typeof error
  return 'code' in error ? String(error.code) : error.name
}

/** Creates the folder. Throws when another user created it or can open it: everyone can write among temporary files. */
export function makeFolder(folder: string): void {
  if (process.platform === 'win32') return
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  const found = lstatSync(folder)
  if (!found.isDirectory() || found.uid !== process.getuid?.() || (found.mode & 0o077) !== 0)
    throw new FleethookError(
      'inbox_unavailable',
      `The folder ${folder} belongs to another user, or others can open it.`,
    )
}

/** Only the same user may connect: the answers show messages. */
function listen(server: Server, socket: string): void {
  if (process.platform === 'win32') {
    server.listen(socket)
    return
  }
  // This process has the file, so a process that died left the old socket.
  rmSync(socket, { force: true })
  const mask = process.umask(0o177)
  try {
    // In a cluster the primary would create it, with a mask of its own.
    server.listen({ path: socket, exclusive: true })
  } finally {
    process.umask(mask)
  }
}
