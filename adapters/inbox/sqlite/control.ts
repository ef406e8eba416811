import { createHash } from 'node:crypto'
import { rmSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import type { Hono } from 'hono'
import type { Log } from '../../../src/base/log.ts'
import { createOperatorApp } from '../../../src/operator/app.ts'
import type { OperatorApi } from '../../../src/inbox/dead-letters.ts'

/** A way to the process that has an inbox's file, for operators on the same machine with the rights of the same user. */
export interface Control {
  close(): void
}

/** The longest path that the address of a socket can have everywhere, in bytes. */
const longestPath = 100

/**
 * Where the process that has the file `path` can be spoken to: beside the file, or, when that path is too long for a socket, under
 * a name made from it in the folder for temporary files.
 */
export function controlPath(path: string): string {
  const whole = resolve(path)
  const name = `fleethook-${createHash('sha256').update(whole).digest('hex').slice(0, 16)}`
  if (process.platform === 'win32') return `\\\\.\\pipe\\${name}`
  const beside = `${whole}.sock`
  return Buffer.byteLength(beside) <= longestPath ? beside : join(tmpdir(), `${name}.sock`)
}

/**
 * Listens there. Whoever calls it has the file to itself, so that a socket of that name is one that a process left that died.
 * Where it cannot be, the log says so, and the receiver does without.
 */
export function openControl(path: string, operator: OperatorApi, log: Log): Control {
  const app = createOperatorApp(operator)
  const socket = controlPath(path)
  const failed = (error: unknown): void =>
    log.warn('operators cannot reach this receiver by its inbox', { socket, error: nameOf(error) })
  const server = createServer((request, response) => void answer(app, request, response))
  server.on('error', failed)
  try {
    listen(server, socket)
    server.unref()
  } catch (error) {
    failed(error)
  }
  return {
    close() {
      server.close()
      server.closeAllConnections()
    },
  }
}

function nameOf(error: unknown): string {
  if (!(error instanceof Error)) return typeof error
  return 'code' in error ? String(error.code) : error.name
}

/** Only the same user may connect: what comes through shows payloads. */
function listen(server: Server, socket: string): void {
  if (process.platform === 'win32') {
    server.listen(socket)
    return
  }
  rmSync(socket, { force: true })
  const mask = process.umask(0o177)
  try {
    server.listen(socket)
  } finally {
    process.umask(mask)
  }
}

async function answer(app: Hono, request: IncomingMessage, response: ServerResponse): Promise<void> {
  try {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(Buffer.from(chunk))
    const { method = 'GET', url = '/' } = request
    const body = Buffer.concat(chunks).toString()
    const answered = await app.request(url, { method, ...(body === '' ? {} : { body }) })
    response.writeHead(answered.status, { 'content-type': 'application/json' })
    response.end(await answered.text())
  } catch {
    response.destroy()
  }
}
