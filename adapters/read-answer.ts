import type { IncomingMessage } from 'node:http'
import type { ReadLimits } from '../src/base/read-within.ts'

/** What was read of the body of an answer. */
interface Read {
  readonly bytes: Buffer
  /** The connection broke, and not because of the limits. */
  readonly error?: unknown
}

/**
 * As `readWithin` on every runtime, for an answer of Node's own client. Also resolves to the beginning of what is longer or takes longer. Its
 * connection is closed then, and can be used again otherwise.
 */
export function readAnswer(answer: IncomingMessage, { mostBytes, mostMs }: ReadLimits): Promise<Read> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = []
    let bytes = 0
    let broken: unknown
    const timer = setTimeout(() => answer.destroy(), mostMs)
    answer.on('data', (chunk: Buffer) => {
      chunks.push(chunk)
      bytes += chunk.length
      if (bytes > mostBytes) answer.destroy()
    })
    answer.on('error', (error) => (broken = error))
    answer.on('close', () => {
      clearTimeout(timer)
      resolve({ bytes: Buffer.concat(chunks), error: answer.complete || bytes > mostBytes ? undefined : broken })
    })
  })
}
