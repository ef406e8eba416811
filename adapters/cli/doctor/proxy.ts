import { randomUUID } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import { gzipSync } from 'node:zlib'
import * as z from 'zod/mini'
import { FleethookError } from '../../../src/base/errors.ts'
import { testHeader } from '../../../src/inbox/receipts.ts'
import { isLoopback } from '../../../src/service/client/webhook-url.ts'
import { codeOf, exchange, parsed } from '../exchange.ts'
import { problemWithSecret } from '../send/post.ts'
import { type ArrivedTest, type Circumstances, fail, type Finding, ok, okIf, skip, warn } from './check.ts'
import { trusted } from './network.ts'

/** The default of `limits.bodyBytes` minus 1 KiB. */
const largeBody = 1_048_576 - 1_024
/** The service may give up on a slower answer. */
const slowMs = 1_000
const timeoutMs = 10_000

/** A message that the receiver answers and gives to no handler. */
const marked = (id: string): string => JSON.stringify({ fleethook: { test: id } })

/** A member that another server may have with another type. */
const textOnly = z.optional(
  z.pipe(
    z.unknown(),
    z.transform((value) => (typeof value === 'string' ? value : undefined)),
  ),
)
/** The form of the receiver's answers. */
const ownAnswer = z.object({ code: z.number(), error: textOnly, hint: textOnly })

/** An answer from the public address, of the receiver or of something before it. */
interface PublicAnswer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly ms: number
  /** The receiver's own answer. `undefined`: something else answered. */
  readonly own: z.output<typeof ownAnswer> | undefined
}

/** Posts marked test messages to the public address, as the service posts messages. */
export async function* checkProxy(circumstances: Circumstances): AsyncIterable<Finding> {
  const { url, variable } = circumstances
  const secret = variable('WEBHOOK_SECRET')
  if (url === undefined || secret === undefined || problemWithSecret(secret) !== undefined) {
    yield skip('proxy.answer', url === undefined ? 'the public address is not known' : 'there is no usable secret')
    return
  }
  if (url.protocol === 'http:' && !isLoopback(url.hostname)) {
    yield skip('proxy.answer', `the secret is not sent to ${url.host} without encryption`)
    return
  }
  const send = (
    body: string | Buffer,
    headers: Record<string, string>,
    method = 'POST',
    path?: string,
  ): Promise<PublicAnswer> => ask(circumstances, path === undefined ? url : new URL(path, url), method, headers, body)
  const json = { 'content-type': 'application/json' }

  const test = randomUUID()
  let first: PublicAnswer
  try {
    first = await send(marked(test), { ...json, authorization: secret })
  } catch (error) {
    yield fail(
      'proxy.answer',
      `${url.origin} did not answer: ${codeOf(error)}.`,
      'Look at the groups network and tls, and at the log of the proxy.',
    )
    return
  }
  yield verdict(url, first)
  if (first.status === 200 && first.own?.code === 0) {
    yield await arrival(circumstances, test, marked(test).length, secret.length)
    yield okIf(first.ms < slowMs, 'proxy.time', `answered within ${Math.max(1, Math.round(first.ms))} ms`).orWarn(
      `The answer took ${Math.round(first.ms)} ms.`,
      'Look at the load of the machine and at fleethook tail.',
    )
    yield await outcome('proxy.gzip', 'A gzip body', () =>
      send(gzipSync(marked(randomUUID())), { ...json, authorization: secret, 'content-encoding': 'gzip' }),
    )
    // Spaces after the value are valid JSON.
    yield await outcome('proxy.body', `A body of ${largeBody} bytes`, () =>
      send(marked(randomUUID()).padEnd(largeBody), { ...json, authorization: secret }),
    )
    const { 'keep-alive': keepAlive, connection } = first.headers
    const open = keepAlive === undefined ? 'connections stay open' : `connections stay open (${String(keepAlive)})`
    yield okIf(connection !== 'close', 'proxy.keep-alive', open).orWarn(
      'Each answer closes its connection, so each message needs a new one.',
      'Turn keep-alive on in the proxy.',
    )
  }
  // Without the header, every secret gets the same answer.
  if (first.own?.error !== 'authorization_missing')
    yield* checkStrangers(url, (headers) => send(marked(randomUUID()), { ...json, ...headers }))
  yield await health(url, (path) => send('', {}, 'GET', path))
}

/** The finding for an answer to the right secret. */
function verdict(url: URL, { status, headers, own }: PublicAnswer): Finding {
  const id = 'proxy.answer'
  if (status === 200 && own?.code === 0)
    return ok(id, 'the receiver took a test message with the secret, seen from here')
  if (status >= 300 && status < 400)
    return fail(
      id,
      `${url.href} redirects to ${headers.location ?? 'another address'}. The service does not follow redirects.`,
      'Set the final address as the webhook.',
    )
  if (own === undefined)
    return fail(
      id,
      `Something before the receiver answered: status ${status}, ${headers['content-type'] ?? 'no content type'}${headers.server === undefined ? '' : `, server ${String(headers.server)}`}.`,
      status === 404 || status === 502 || status === 503 || status === 504
        ? 'Check the path and the upstream in the proxy.'
        : 'Let the proxy pass POST requests of this path to the receiver.',
    )
  switch (own.error) {
    case 'authorization_missing':
      return fail(
        id,
        'The receiver got no Authorization header: something on the way removes it.',
        'Pass the header on: `proxy_set_header Authorization $http_authorization;` in nginx, `CGIPassAuth On` in Apache.',
      )
    case 'authorization_scheme':
    case 'secret_wrong':
      return fail(
        id,
        own.hint?.includes('two Authorization headers') || own.hint?.includes('in quotes')
          ? own.hint
          : 'The receiver has another secret than WEBHOOK_SECRET here, or something on the way changes the header.',
        'Compare the check digits that serve and fleethook send print. If they are the same, let the proxy pass the header on unchanged.',
      )
    case 'path_unknown':
      return fail(
        id,
        `The receiver has no webhook at ${url.pathname}.`,
        'Use the path at which the receiver is mounted.',
      )
    default:
      return fail(
        id,
        `The receiver answered ${status}: ${own.error ?? `code ${own.code}`}.`,
        'Look this code up in docs/troubleshooting.md.',
      )
  }
}

/** Checks what the receiver of this machine received, with its feed. */
async function arrival(
  { arrived, inbox }: Circumstances,
  test: string,
  bytes: number,
  secretLength: number,
): Promise<Finding> {
  const id = 'proxy.headers'
  let found: ArrivedTest | undefined
  try {
    found = await arrived(test)
  } catch (error) {
    return skip(id, `what arrives cannot be seen: ${error instanceof FleethookError ? error.message : codeOf(error)}`)
  }
  if (found === undefined)
    return warn(
      id,
      `Another receiver answered: the one with the inbox ${inbox} did not get the message.`,
      'Look for a second process or machine behind this address, or name the right inbox with --inbox.',
    )
  const names = found.headers.map(({ name, length }) => `${name} (${length})`).join(', ')
  const length = found.headers.find(({ name }) => name === 'authorization')?.length
  if (found.bytes !== bytes || (length !== undefined && length !== secretLength))
    return warn(
      id,
      `The message was changed on the way: ${bytes} bytes became ${found.bytes}. Headers that arrived, with their lengths: ${names}.`,
      'Let the proxy pass requests on unchanged.',
    )
  return ok(id, `${found.bytes} bytes arrived unchanged, with the headers ${names}`)
}

async function outcome(id: Finding['id'], what: string, attempt: () => Promise<PublicAnswer>): Promise<Finding> {
  try {
    const { status, own, headers } = await attempt()
    if (status === 200 && own?.code === 0) return ok(id, `${what} arrives`)
    return own === undefined
      ? fail(
          id,
          `${what} was refused before the receiver: status ${status}${headers.server === undefined ? '' : `, server ${String(headers.server)}`}.`,
          'Raise the limit of the proxy: `client_max_body_size 2m;` in nginx.',
        )
      : fail(
          id,
          `${what} was refused by the receiver: status ${status}, ${own.error ?? `code ${own.code}`}.`,
          'Does the proxy change bodies? See limits.bodyBytes for large ones.',
        )
  } catch (error) {
    return fail(id, `${what} got no answer: ${codeOf(error)}.`, 'Look at the log of the proxy.')
  }
}

async function* checkStrangers(
  url: URL,
  post: (headers: Record<string, string>) => Promise<PublicAnswer>,
): AsyncIterable<Finding> {
  try {
    const { status, own } = await post({ authorization: `not-${randomUUID()}` })
    if (status === 403 && own !== undefined) yield ok('proxy.stranger', 'a wrong secret is refused by the receiver')
    else if (status === 200)
      yield fail(
        'proxy.stranger',
        `${url.href} takes messages with a wrong secret.`,
        'Does the proxy set the header itself, or does the receiver have `secret: false`?',
      )
    else
      yield warn(
        'proxy.stranger',
        `A wrong secret got status ${status}${own === undefined ? ', not from the receiver' : ''} instead of 403.`,
        'Does the proxy check or add an Authorization header of its own?',
      )
  } catch (error) {
    yield warn('proxy.stranger', `A wrong secret got no answer: ${codeOf(error)}.`, 'Look at the log of the proxy.')
  }
}

async function health(url: URL, get: (path: string) => Promise<PublicAnswer>): Promise<Finding> {
  const path = `${url.pathname.replace(/\/$/, '')}/healthz`
  try {
    const { status } = await get(path)
    return status === 200
      ? ok('proxy.health', `${path} answers`)
      : skip(
          'proxy.health',
          `${path} answers ${status}: the proxy does not pass it on, which is fine when nothing probes it`,
        )
  } catch (error) {
    return skip('proxy.health', `${path}: ${codeOf(error)}`)
  }
}

/** Sends a request over a new connection. It checks the certificate, so that nobody else gets the secret. */
async function ask(
  { ca, signal }: Circumstances,
  url: URL,
  method: string,
  headers: Record<string, string>,
  body: string | Buffer,
): Promise<PublicAnswer> {
  const { text, ...answer } = await exchange(url, {
    ...{ method, body, agent: false, ca: trusted(ca) },
    headers: { 'user-agent': 'fleethook-doctor', [testHeader]: '1', ...headers },
    signal: AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]),
  })
  return { ...answer, own: ownAnswer.safeParse(parsed(text)).data }
}
