import { Agent as HttpAgent, request as httpRequest } from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import type { PostMessage } from '../../../src/service/sandbox/options.ts'

/** Posts messages over connections that stay open, with or without a look at the certificate. */
export function createPost(): { readonly post: PostMessage; readonly close: () => void } {
  const limits = { keepAlive: true, maxSockets: 64 }
  const plain = new HttpAgent(limits)
  const checked = new HttpsAgent(limits)
  const unchecked = new HttpsAgent({ ...limits, rejectUnauthorized: false })

  const post: PostMessage = ({ url, headers, body, verify, signal }) =>
    new Promise((resolve, reject) => {
      const secure = new URL(url).protocol === 'https:'
      const agent = secure ? (verify ? checked : unchecked) : plain
      const length = { 'content-length': String(Buffer.byteLength(body)) }
      const outgoing = (secure ? httpsRequest : httpRequest)(
        url,
        { method: 'POST', agent, signal, headers: { ...headers, ...length } },
        (answer) => {
          answer.resume()
          answer.once('error', reject)
          answer.once('end', () => resolve(answer.statusCode ?? 0))
        },
      )
      outgoing.once('error', reject)
      outgoing.end(body)
    })

  return {
    post,
    close() {
      for (const agent of [plain, checked, unchecked]) agent.destroy()
    },
  }
}
