import { existsSync } from 'node:fs'
import { request } from 'node:http'
import { FleethookError } from '../../../src/base/errors.ts'
import { controlPath } from '../../inbox/sqlite/control.ts'
import { openStopped } from './stopped.ts'

/** Where an operator's questions are answered. */
export interface Connection {
  /** By a receiver that runs, on this machine or behind a URL; or from the file of one that does not. */
  readonly to: 'running' | 'stopped'
  /** Resolves to the answer's JSON. Rejects with a `FleethookError` when it is not one, or tells of an error. */
  ask(method: 'GET' | 'POST', path: string, body?: object): Promise<unknown>
  close(): Promise<void>
}

export interface ConnectionOptions {
  /** The inbox's file. */
  readonly inbox: string
  /** Where `operatorRoutes` are mounted, when the receiver is not on this machine. */
  readonly url: string | undefined
  readonly secret: string | undefined
}

interface Answer {
  readonly status: number
  readonly text: string
}

/** Finds the receiver of an inbox: the process that has the file, or else the file. */
export async function connect({ inbox, url, secret }: ConnectionOptions): Promise<Connection> {
  if (url !== undefined) return connection('running', (...asked) => overHttp(url, secret, ...asked))
  if (!existsSync(inbox)) {
    throw new FleethookError('inbox_unavailable', `There is no inbox at ${inbox}.`, {
      hint: 'Say where it is with --inbox, or FLEETHOOK_INBOX.',
    })
  }
  const socket = controlPath(inbox)
  if (await listens(socket)) return connection('running', (...asked) => overSocket(socket, ...asked))
  const stopped = await openStopped(inbox).catch((error: unknown) => {
    if (!(error instanceof FleethookError) || error.code !== 'inbox_locked') throw error
    throw new FleethookError(
      'inbox_locked',
      `Another process has ${inbox}, and does not answer operators at ${socket}.`,
      {
        hint: 'Run this command as the user that the receiver runs as; or stop the receiver, and ask again.',
      },
    )
  })
  return connection('stopped', async (method, path, body) => {
    const response = await stopped.app.request(path, { method, ...(body === undefined ? {} : { body }) })
    return { status: response.status, text: await response.text() }
  }, stopped.close) // prettier-ignore
}

function connection(
  to: Connection['to'],
  ask: (method: string, path: string, body: string | undefined) => Promise<Answer>,
  close: () => Promise<void> = async () => {},
): Connection {
  return {
    to,
    async ask(method, path, body) {
      const { status, text } = await ask(method, path, body === undefined ? undefined : JSON.stringify(body))
      const value = parsed(text)
      if (status === 200 && value !== undefined) return value
      const said = typeof value === 'object' && value !== null && 'text' in value ? String(value.text) : ''
      throw new FleethookError('inbox_unavailable', said === '' ? `The receiver answered with ${status}.` : said)
    },
    close,
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function listens(socketPath: string): Promise<boolean> {
  return new Promise((resolve) => {
    const asking = request({ socketPath, path: '/', method: 'GET' }, (response) => {
      response.resume()
      resolve(true)
    })
    asking.once('error', () => resolve(false))
    asking.end()
  })
}

function overSocket(socketPath: string, method: string, path: string, body: string | undefined): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const asking = request({ socketPath, path, method }, (response) => {
      const chunks: Buffer[] = []
      response.on('data', (chunk: Buffer) => chunks.push(chunk))
      response.once('end', () => resolve({ status: response.statusCode ?? 0, text: Buffer.concat(chunks).toString() }))
      response.once('error', reject)
    })
    asking.once('error', reject)
    asking.end(body)
  })
}

async function overHttp(
  url: string,
  secret: string | undefined,
  method: string,
  path: string,
  body: string | undefined,
): Promise<Answer> {
  if (secret === undefined) {
    throw new FleethookError('secret_missing', 'FLEETHOOK_OPERATOR_SECRET is not set.', {
      hint: 'Set it in the environment or in .env to the secret that was given to operatorRoutes.',
    })
  }
  try {
    const response = await fetch(url.replace(/\/$/, '') + path, {
      method,
      headers: { authorization: secret },
      redirect: 'error',
      ...(body === undefined ? {} : { body }),
    })
    return { status: response.status, text: await response.text() }
  } catch (cause) {
    throw new FleethookError('inbox_unavailable', `${url} could not be reached.`, { cause })
  }
}
