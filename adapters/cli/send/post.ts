import { Agent as HttpAgent } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import type { Format, WireTopic } from '../../../src/events/event.ts'
import { escapeControls } from '../../../src/events/summarize.ts'
import { authorization } from '../../../src/wire/encode.ts'
import { codeOf, exchange, type Exchanged, parsed } from '../exchange.ts'

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

export type PostOutcome =
  | { readonly kind: 'accepted'; readonly ackMs: number }
  | ({ readonly kind: 'refused'; readonly ackMs: number; readonly status: number } & RefusalBody)
  | { readonly kind: 'failed'; readonly code: string }

/** The body of a refusal. A part that the receiver did not send is `undefined`. */
export interface RefusalBody {
  readonly code: number | undefined
  readonly error: string | undefined
  readonly text: string | undefined
  readonly hint: string | undefined
}

/** Posts messages over connections that stay open. */
interface Poster {
  post(body: string, format: Format): Promise<PostOutcome>
  close(): void
}

/** The sender's side of the webhook. */
export function createPoster({ url, secret, timeoutMs, concurrency, checkCertificate }: SendOptions): Poster {
  const keepAlive = { keepAlive: true, maxSockets: concurrency }
  const agent =
    url.protocol === 'https:'
      ? new HttpsAgent({ ...keepAlive, rejectUnauthorized: checkCertificate })
      : new HttpAgent(keepAlive)

  async function post(body: string, format: Format): Promise<PostOutcome> {
    const headers = {
      'content-type': 'application/json',
      'user-agent': 'fleethook-send',
      ...(secret === undefined ? {} : { authorization: authorization(secret, format) }),
    }
    // One timer for the whole exchange: a socket's own timeout starts again with every byte.
    const over = new AbortController()
    const timer = setTimeout(() => over.abort(), timeoutMs)
    try {
      const answer = await exchange(url, { agent, headers, body, signal: over.signal })
      const { status, ms: ackMs } = answer
      if (status >= 200 && status < 300) return { kind: 'accepted', ackMs }
      return { kind: 'refused', ackMs, status, ...refusalOf(answer) }
    } catch (error) {
      return { kind: 'failed', code: over.signal.aborted ? 'TIMEOUT' : codeOf(error) }
    } finally {
      clearTimeout(timer)
    }
  }

  return { post, close: () => agent.destroy() }
}

function refusalOf({ status, headers, text }: Exchanged): RefusalBody {
  const said = Object(parsed(text))
  const words = typeof said['text'] === 'string' ? said['text'] : (text.split('\n', 1)[0] ?? '')
  const redirection =
    headers.location !== undefined && status >= 300 && status < 400
      ? `It redirects to ${printable(headers.location)}: the service does not follow redirects, so give the final address.`
      : undefined
  return {
    code: typeof said['code'] === 'number' ? said['code'] : undefined,
    error: typeof said['error'] === 'string' ? printable(said['error']) : undefined,
    text: words === '' ? undefined : printable(words).slice(0, 120),
    hint: typeof said['hint'] === 'string' ? printable(said['hint']) : redirection,
  }
}

/** Text from a server in one line, without control characters for a terminal. */
function printable(text: string): string {
  return escapeControls(text.replaceAll(/\s+/g, ' ').trim())
}

/** Why a header cannot carry this secret, or `undefined`. Never shows a character of it. */
export function problemWithSecret(secret: string): string | undefined {
  if (secret === '') return 'The secret is empty.'
  if (secret.trim() !== secret) return 'The secret begins or ends with white space.'
  if (!/^[\x20-\x7e]+$/.test(secret))
    return 'The secret has characters that are not visible ASCII, and a header cannot carry them.'
  return undefined
}
