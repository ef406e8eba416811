import { request as httpRequest, type IncomingHttpHeaders, type OutgoingHttpHeaders } from 'node:http'
import { type RequestOptions, request as httpsRequest } from 'node:https'

/** A request that is not sent with `fetch`: the caller chooses its connections and how the certificate is checked. */
interface Sent extends Pick<RequestOptions, 'method' | 'agent' | 'ca' | 'signal'> {
  readonly headers: OutgoingHttpHeaders
  readonly body: string | Uint8Array
}

export interface Exchanged {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  /** The time until its headers arrived, in milliseconds. */
  readonly ms: number
  /** The beginning of its body. */
  readonly text: string
}

const mostChars = 4_096

/** Sends a request once, without following a redirection. Rejects with a system error, or with the reason of the signal. */
export function exchange(url: string | URL, { headers, body, ...options }: Sent): Promise<Exchanged> {
  return new Promise((resolve, reject) => {
    const startedAt = performance.now()
    const request = new URL(url).protocol === 'https:' ? httpsRequest : httpRequest
    const failed = (error: Error): void => reject(options.signal?.aborted === true ? options.signal.reason : error)
    const length = { 'content-length': Buffer.byteLength(body) }
    const outgoing = request(url, { method: 'POST', ...options, headers: { ...headers, ...length } }, (answer) => {
      const ms = performance.now() - startedAt
      const { statusCode: status = 0, headers } = answer
      let text = ''
      answer.setEncoding('utf8')
      answer.on('data', (chunk: string) => (text += chunk.slice(0, mostChars - text.length)))
      answer.on('error', failed)
      answer.on('end', () => resolve({ status, headers, ms, text }))
    })
    outgoing.on('error', failed)
    outgoing.end(body)
  })
}

/** The code of a system error, or its name. Not its text, which can quote what was sent. */
export function codeOf(error: unknown): string {
  if (error instanceof Error && 'code' in error && typeof error.code === 'string') return error.code
  return error instanceof Error ? error.name : typeof error
}

/** A text as JSON. `undefined`: it is none. */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
