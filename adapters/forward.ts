/**
 * `fleethook/forward` on Node. What `fetch` makes for each request stays until all of the memory is collected, and while that moves, the answers of
 * the receiver wait.
 *
 * @module
 */
import { request as httpRequest } from 'node:http'
import { request as httpsRequest } from 'node:https'
import type { forward as forwardAnywhere } from '../src/forward.ts'
import { answerLimits, forwardingWith, type Post } from '../src/branch/posting.ts'
import { readAnswer } from './read-answer.ts'

export type { Forwarding, ForwardOptions } from '../src/branch/posting.ts'

/** As on every runtime. */
export const forward: typeof forwardAnywhere = (options) => forwardingWith(post, options)

const post: Post = (to, request) =>
  new Promise((resolve, reject) => {
    const { headers, body, signal } = request
    const begin = to.protocol === 'https:' ? httpsRequest : httpRequest
    const asked = begin(to, { method: 'POST', headers: { ...headers, 'content-length': Buffer.byteLength(body) } })
    let hasAnswer = false
    const end = (): void => void asked.destroy(new Error('Ended.'))
    signal.addEventListener('abort', end)
    asked.on('error', (error) => {
      // The status has come, and that is the answer.
      if (hasAnswer) return
      // The other server has closed a connection that was open since an earlier request.
      const isStale = asked.reusedSocket && 'code' in error && /^(?:ECONNRESET|EPIPE)$/.test(String(error.code))
      if (isStale && !signal.aborted) resolve(post(to, request))
      else reject(error)
    })
    asked.on('close', () => {
      signal.removeEventListener('abort', end)
      if (!hasAnswer) reject(new Error('The connection was closed.'))
    })
    asked.on('response', (answer) => {
      hasAnswer = true
      const read = { status: answer.statusCode ?? 0, retryAfter: answer.headers['retry-after'] ?? null }
      void readAnswer(answer, answerLimits).then(() => resolve(read))
    })
    asked.end(body)
  })
