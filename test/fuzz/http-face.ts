import { gunzipSync, gzipSync } from 'node:zlib'
import { chance, oneOf, type Random, whole } from '../../src/service/fleet/random.ts'
import { createReceiver, type Receiver } from '../../src/index.ts'
import { split } from '../../src/normalize.ts'
import { readAnswer } from './answer.ts'
import { type Face, hiddenPollution, pollution } from './face.ts'
import { damagedBytes, mutatedBytes, mutatedText } from './mutation.ts'

const secret = 'a-long-random-value'
/** What was logged since the last check. */
const lines: string[] = []
const note = (line: string, details?: unknown): void => void lines.push(`${line} ${JSON.stringify(details)}`)
const log = { debug: note, info: note, warn: note, error: note }

interface Sent {
  readonly method: string
  readonly path: string
  readonly authorization: string | undefined
  readonly encoding: string | undefined
  readonly bytes: Uint8Array<ArrayBuffer>
}

interface Got {
  readonly status: number
  readonly text: string
  /** The connection broke before the end of the body. */
  readonly isCut: boolean
}

const authorizations = [
  undefined,
  'wrong',
  `${secret}x`,
  `Bearer ${secret}`,
  'Splunk',
  'Basic !',
  `"${secret}"`,
] as const
const methods = ['GET', 'HEAD', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'PROPFIND', 'POST'] as const
const collected = ['/services/collector', '/services/collector/event', '/services/collector/event/1.0'] as const
const elsewhere = [
  '/services/collector/health',
  '/services/collector/raw',
  '/x',
  '//',
  '/services/collector//',
] as const

function sentBy(random: Random): Sent {
  const bytes = mutatedBytes(random, mutatedText(random))
  const isPlain = chance(random, 0.85)
  const zipped = chance(random, 0.1) ? new Uint8Array(gzipSync(bytes, { level: 1 })) : undefined
  return {
    method: isPlain ? 'POST' : oneOf(random, methods),
    path: isPlain ? '/' : chance(random, 0.7) ? oneOf(random, collected) : oneOf(random, elsewhere),
    authorization: chance(random, 0.95) ? `Splunk ${secret}` : oneOf(random, authorizations),
    encoding: zipped
      ? 'gzip'
      : chance(random, 0.02)
        ? oneOf(random, ['br', 'gzip', 'GZIP ', 'identity', ''])
        : undefined,
    bytes: zipped ? (chance(random, 0.3) ? damagedBytes(random, zipped) : zipped) : bytes,
  }
}

/** Posts odd requests through `fetch` and `accept`, and compares the answers with the table and with each other. */
export function createHttpFace(): Face {
  let receiver = fresh()
  let taken = 0

  async function check(random: Random): Promise<string | undefined> {
    const sent = sentBy(random)
    try {
      const got = await byFetch(receiver, sent, random)
      const flaw = answerFlaw(sent, got) ?? pollution() ?? logFlaw()
      if (flaw !== undefined) return flaw
      taken += takenBy(sent, got)
      // `accept` sees no method and has no health checks, and a body that is already inflated may still have its
      // header.
      if (sent.method !== 'POST' || !isTaken(sent) || sent.encoding !== undefined || got.isCut) return undefined
      const { authorization, bytes: body, path } = sent
      const { status, body: text } = await receiver.accept({ authorization, body, path })
      taken += takenBy(sent, { status, text, isCut: false })
      return status === got.status && text === got.text ? undefined : `accept() answers ${text}, fetch() ${got.text}`
    } catch (error) {
      return `It threw ${error instanceof Error ? error.stack : String(error)}`
    }
  }

  return {
    check,
    /** Everything that was acknowledged is there and is handled, and nothing else. */
    async checkAll() {
      const { lost } = await receiver.drain()
      const { received, handled, pending, running, deadLettered } = receiver.stats()
      const counted = { received, handled, lost, pending: pending.messages, running, deadLettered }
      const wanted = { received: taken, handled: taken, lost: 0, pending: 0, running: 0, deadLettered: 0 }
      receiver = fresh()
      taken = 0
      const isRight = JSON.stringify(counted) === JSON.stringify(wanted)
      return hiddenPollution() ?? (isRight ? undefined : `${JSON.stringify(counted)}, not ${JSON.stringify(wanted)}`)
    },
  }
}

function fresh(): Receiver {
  const limits = { bodyBytes: 1_048_576, pendingMessages: 100_000, pendingBytes: 2 ** 30 }
  return createReceiver({ secret, log, limits }).on('*', () => {})
}

function logFlaw(): string | undefined {
  return lines.splice(0).join().includes(secret) ? 'The log tells the secret.' : undefined
}

async function byFetch(receiver: Receiver, sent: Sent, random: Random): Promise<Got> {
  const { method, path, authorization, encoding, bytes } = sent
  const headers = new Headers()
  if (authorization !== undefined) headers.set('authorization', authorization)
  if (encoding !== undefined) headers.set('content-encoding', encoding)
  const isBodyless = method === 'GET' || method === 'HEAD'
  const streams = !isBodyless && chance(random, 0.2)
  if (!isBodyless && !streams) headers.set('content-length', String(bytes.byteLength))
  const isCut = streams && chance(random, 0.2)
  const body = isBodyless ? null : streams ? pieces(bytes, random, isCut) : bytes
  const init = { method, headers, body, ...(streams ? { duplex: 'half' } : {}) }
  const response = await receiver.fetch(new Request(`http://receiver.test${path}`, init))
  return { status: response.status, text: await response.text(), isCut }
}

function pieces(
  bytes: Uint8Array<ArrayBuffer>,
  random: Random,
  isCut: boolean,
): ReadableStream<Uint8Array<ArrayBuffer>> {
  let at = 0
  return new ReadableStream({
    pull(controller) {
      if (at >= bytes.length) return isCut ? controller.error(new Error('The connection broke.')) : controller.close()
      const end = at + whole(random, 1, Math.max(1, bytes.length))
      controller.enqueue(bytes.slice(at, end))
      at = end
    },
  })
}

const isTaken = ({ path }: Sent): boolean => path === '/' || collected.some((known) => known === path)

/** The number of messages that an answer acknowledges. Messages before a broken one were taken too. */
function takenBy(sent: Sent, { status, text, isCut }: Got): number {
  if (sent.method !== 'POST' || !isTaken(sent) || isCut) return 0
  if (status === 200) return piecesOf(sent)?.pieces.length ?? 0
  const answer = readAnswer(status, text)
  return typeof answer === 'string' || status !== 400 ? 0 : (answer.eventNumber ?? 0)
}

const inflated = new WeakMap<Sent, ReturnType<typeof split>>()

function piecesOf(sent: Sent): ReturnType<typeof split> | undefined {
  const known = inflated.get(sent)
  if (known !== undefined) return known
  try {
    const bytes = sent.encoding?.trim().toLowerCase() === 'gzip' ? gunzipSync(sent.bytes) : sent.bytes
    const result = split(new TextDecoder().decode(bytes))
    inflated.set(sent, result)
    return result
  } catch {
    return undefined
  }
}

function answerFlaw(sent: Sent, { status, text, isCut }: Got): string | undefined {
  if (text.includes(secret)) return 'The answer tells the secret.'
  const answer = readAnswer(status, text, sent.method)
  if (typeof answer === 'string') return answer
  if (status === 503) return `There was room, and the answer is ${text}`
  if (sent.method !== 'POST' || !isTaken(sent)) return undefined
  if (isCut) return status === 200 ? 'A body that was cut off was acknowledged.' : undefined
  const isFriend = sent.authorization === `Splunk ${secret}`
  if (isFriend === (status === 401 || status === 403)) return `With this secret the answer is ${text}`
  const result = isFriend ? piecesOf(sent) : undefined
  if (result === undefined) return status === 200 ? 'What cannot be read was acknowledged.' : undefined
  if (answer.error === 'body_gzip_broken' && sent.encoding === undefined) return `What is no gzip got ${text}`
  const isWhole = result.broken === undefined && result.pieces.length > 0
  if (status === 200 && !isWhole) return 'What is broken was acknowledged.'
  // Bytes after the end of a gzip body make it broken for the receiver, but not for zlib.
  const mayRefuse = ['time_invalid', 'event_missing', 'event_blank', 'encoding_unsupported', 'body_gzip_broken']
  return isWhole && status !== 200 && !mayRefuse.includes(answer.error ?? '') ? `What is whole got ${text}` : undefined
}
