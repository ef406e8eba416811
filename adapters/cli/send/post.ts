import { Agent as HttpAgent, request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import type { Format, WireTopic } from '../../../src/events/event.ts'
import { escapeControls } from '../../../src/events/summarize.ts'
import { authorization } from '../../../src/wire/encode.ts'

/** What `fleethook send` does. */
export interface SendOptions {
  readonly url: URL
  readonly secret: string | undefined
  /** Messages use these in turn. */
  readonly formats: readonly Format[]
  readonly topics: readonly WireTopic[]
  readonly vins: number
  readonly ratePerSecond: number
  /** `Infinity`: until Ctrl+C. */
  readonly count: number
  readonly seed: number
  /** Milliseconds since the epoch. `undefined`: early enough that the last message is from now. */
  readonly startAt: number | undefined
  readonly concurrency: number
  readonly timeoutMs: number
  readonly checkCertificate: boolean
  readonly output: 'progress' | 'quiet' | 'json'
}

/** The outcome of one POST. */
export type PostOutcome =
  | { readonly kind: 'accepted'; readonly ackMs: number }
  | ({ readonly kind: 'refused'; readonly ackMs: number; readonly status: number } & RefusalBody)
  | { readonly kind: 'failed'; readonly code: string }

/** The body of a refusal. Each part is there only if the receiver sent it. */
export interface RefusalBody {
  readonly code?: number
  readonly error?: string
  readonly text?: string
  readonly hint?: string
}

/** Posts messages over connections that stay open. */
interface Poster {
  post(body: string, format: Format): Promise<PostOutcome>
  close(): void
}

const answerChars = 4_096

/** The sender's side of the webhook. */
export function createPoster({ url, secret, timeoutMs, concurrency, checkCertificate }: SendOptions): Poster {
  const secure = url.protocol === 'https:'
  const keepAlive = { keepAlive: true, maxSockets: concurrency }
  const agent = secure
    ? new HttpsAgent({ ...keepAlive, rejectUnauthorized: checkCertificate })
    : new HttpAgent(keepAlive)
  const request = secure ? httpsRequest : httpRequest

  const post = (body: string, format: Format): Promise<PostOutcome> =>
    new Promise((resolve) => {
      const options: RequestOptions = {
        method: 'POST',
        agent,
        headers: {
          'content-type': 'application/json',
          'content-length': Buffer.byteLength(body),
          'user-agent': 'fleethook-send',
          ...(secret === undefined ? {} : { authorization: authorization(secret, format) }),
        },
      }
      const startedAt = performance.now()
      const outgoing = request(url, options, (response) => {
        const ackMs = performance.now() - startedAt
        const status = response.statusCode ?? 0
        const accepted = status >= 200 && status < 300
        read(response).then(
          (text) =>
            settle(
              accepted ? { kind: 'accepted', ackMs } : { kind: 'refused', ackMs, status, ...answer(text, response) },
            ),
          fail,
        )
      })
      // One timer for the whole exchange: a socket's own timeout starts again with every byte.
      const timer = setTimeout(() => {
        settle({ kind: 'failed', code: 'TIMEOUT' })
        outgoing.destroy()
      }, timeoutMs)
      const settle = (outcome: PostOutcome): void => {
        clearTimeout(timer)
        resolve(outcome)
      }
      const fail = (error: unknown): void => settle({ kind: 'failed', code: codeOf(error) })
      outgoing.on('error', fail)
      outgoing.end(body)
    })

  return { post, close: () => agent.destroy() }
}

async function read(response: IncomingMessage): Promise<string> {
  let text = ''
  response.setEncoding('utf8')
  for await (const chunk of response) {
    if (text.length < answerChars) text += String(chunk)
  }
  return text.slice(0, answerChars)
}

function answer(text: string, response: IncomingMessage): RefusalBody {
  const said = object(text)
  const code = typeof said['code'] === 'number' ? { code: said['code'] } : {}
  const error = typeof said['error'] === 'string' ? { error: printable(said['error']) } : {}
  const hint = typeof said['hint'] === 'string' ? { hint: printable(said['hint']) } : hintFor(response)
  const words = typeof said['text'] === 'string' ? said['text'] : (text.split('\n', 1)[0] ?? '')
  return { ...code, ...error, ...hint, ...(words === '' ? {} : { text: printable(words).slice(0, 120) }) }
}

function hintFor({ statusCode, headers }: IncomingMessage): { readonly hint?: string } {
  if (headers.location !== undefined && statusCode !== undefined && statusCode >= 300 && statusCode < 400) {
    return {
      hint: `It redirects to ${printable(headers.location)}: the service does not follow redirects, so give the final address.`,
    }
  }
  return {}
}

function object(text: string): { readonly [key: string]: unknown } {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? { ...value } : {}
  } catch {
    return {}
  }
}

/** Text from a server in one line, without control characters for a terminal. */
function printable(text: string): string {
  return escapeControls(text.replaceAll(/\s+/g, ' ').trim())
}

function codeOf(error: unknown): string {
  if (error instanceof Error && 'code' in error && typeof error.code === 'string') return error.code
  return error instanceof Error ? error.name : 'UNKNOWN'
}

/** Why a header cannot carry this secret, or `undefined`. Never shows a character of it. */
export function problemWithSecret(secret: string): string | undefined {
  if (secret === '') return 'The secret is empty.'
  if (secret.trim() !== secret) return 'The secret begins or ends with white space.'
  if (!/^[\x20-\x7e]+$/.test(secret))
    return 'The secret has characters that are not visible ASCII, and a header cannot carry them.'
  return undefined
}
