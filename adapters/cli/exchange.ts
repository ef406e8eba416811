import { Agent as HttpAgent, request as httpRequest, type IncomingHttpHeaders, type IncomingMessage } from 'node:http'
import { Agent as HttpsAgent, type RequestOptions, request as httpsRequest } from 'node:https'
import { TLSSocket } from 'node:tls'
import { urlToHttpOptions } from 'node:url'
import type { ReadLimits } from '../../src/base/read-within.ts'
import type { PostMessage } from '../../src/service/sandbox/options.ts'
import { readAnswer } from '../read-answer.ts'

/**
 * Sends a request as `fetch` cannot: over chosen connections or a socket, with its own check of the certificate. Follows no redirection.
 * Rejects with a system error, or with the reason of the signal.
 */
export function open(options: RequestOptions, body: string | Uint8Array = ''): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const request = options.protocol === 'https:' ? httpsRequest : httpRequest
    const headers = { ...options.headers, 'content-length': Buffer.byteLength(body) }
    const outgoing = request({ ...options, headers }, resolve)
    outgoing.on('error', (error) => reject(reasonOf(error, options)))
    outgoing.end(body)
  })
}

const reasonOf = (error: unknown, { signal }: RequestOptions): unknown => (signal?.aborted ? signal.reason : error)

export interface Exchanged {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  /** The time until its headers arrived, in milliseconds. */
  readonly ms: number
  /** The beginning of its body. */
  readonly text: string
  /** When the certificate of the other side ends, in milliseconds since the epoch. `undefined`: without TLS. */
  readonly certificateUntilMs: number | undefined
}

/** The rest of an answer is not read. Its status has come, and texts that say more are short. */
const limits: ReadLimits = { mostBytes: 65_536, mostMs: 5_000 }
const mostChars = 4_096

/** Posts once. Rejects as `open` does. */
export async function exchange(
  url: string | URL,
  { body, ...options }: RequestOptions & { readonly body: string | Uint8Array },
): Promise<Exchanged> {
  const startedAt = performance.now()
  const answer = await open({ method: 'POST', ...urlToHttpOptions(new URL(url)), ...options }, body)
  const ms = performance.now() - startedAt
  const end = answer.socket instanceof TLSSocket ? Date.parse(answer.socket.getPeerCertificate().valid_to) : Number.NaN
  const { bytes, error } = await readAnswer(answer, limits)
  if (error !== undefined) throw reasonOf(error, options)
  return {
    status: answer.statusCode ?? 0,
    headers: answer.headers,
    ms,
    text: bytes.toString().slice(0, mostChars),
    certificateUntilMs: Number.isNaN(end) ? undefined : end,
  }
}

/** The code of a system error, or its name. Not its text, which can quote what was sent. */
export function codeOf(error: unknown): string {
  if (error instanceof Error && 'code' in error && typeof error.code === 'string') return error.code
  return error instanceof Error ? error.name : typeof error
}

/** A text as JSON. `undefined`: not JSON. */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** What to do when there is no answer, by the error's code. */
const advice: readonly (readonly [RegExp, string])[] = [
  [/^(ENOTFOUND|EAI_)/, 'Add the name to the DNS.'],
  [
    /^(ECONNREFUSED|E\w*UNREACH|ETIMEDOUT)/,
    'Does the receiver or its proxy run, on this port, and does the firewall allow it?',
  ],
  // What to do about `No answer in time.`: Answer before you work. With `ack: 'handled'`, the handlers are part of the time.
  [/^Timeout/i, 'No answer in time. The service would not wait either: answer first, work afterwards.'],
  [/^(ERR_SSL|EPROTO)/, 'Does TLS end at this port?'],
  [/^ERR_TLS_CERT_ALTNAME_INVALID/, 'Use a certificate for this name.'],
  [/^CERT_HAS_EXPIRED/, 'Renew the certificate, and find out why it did not renew itself.'],
  [/^UNABLE_TO/, 'Send the whole chain of a public authority: the file with the intermediates is often fullchain.pem.'],
  [/SIGNED/, 'Use a certificate of a public authority.'],
  [/./, 'Look at the log of the proxy and of the receiver.'],
]

export const adviceFor = (code: string): string => advice.find(([error]) => error.test(code))?.[1] ?? ''

/** Posts messages over connections that stay open. Checks the TLS certificate, or not, as the webhook says. */
export function createPost(): { readonly post: PostMessage; readonly close: () => void } {
  const limits = { keepAlive: true, maxSockets: 64 }
  const plain = new HttpAgent(limits)
  const checked = new HttpsAgent(limits)
  const unchecked = new HttpsAgent({ ...limits, rejectUnauthorized: false })

  const post: PostMessage = async ({ url, headers, body, verify, signal }) => {
    const secure = new URL(url).protocol === 'https:'
    const agent = secure ? (verify ? checked : unchecked) : plain
    const { status } = await exchange(url, { agent, signal, headers: { ...headers }, body })
    return status
  }

  return {
    post,
    close() {
      for (const agent of [plain, checked, unchecked]) agent.destroy()
    },
  }
}
