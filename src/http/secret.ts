import timingSafeEqual from '#timing-safe-equal'
import { guarded, type Log } from '../base/log.ts'
import { FleethookError, withHint } from '../base/errors.ts'
import type { Door } from './paths.ts'
import type { Refusal } from './answers.ts'

/** One secret, or several while one replaces another. */
type SecretValue = string | readonly string[]

/**
 * The secret of a receiver: the value that is set as `auth` of the webhook. A list accepts each of its secrets, for rotation. A
 * function is called for each request with the `env` of the runtime. `false` accepts every request.
 */
export type Secret<Bindings = unknown> =
  SecretValue | ((env: Bindings) => SecretValue | null | undefined | Promise<SecretValue | null | undefined>) | false

/** The secret that a request came with. */
export interface UsedSecret {
  /** Its place among the secrets. Left out: every request is accepted. */
  readonly place?: number
  /** There is a list of secrets. */
  readonly isListed?: boolean
}

/** Checks the Authorization header of a request: the secret that it has, or why it is refused. */
export type SecretCheck<Bindings = unknown> = (
  authorization: string | null | undefined,
  door: Door,
  env: Bindings,
) => Refusal | UsedSecret | Promise<Refusal | UsedSecret>

interface ExpectedSecret {
  readonly used: UsedSecret
  /** The value without its scheme, when the scheme is the collector's or there is none. */
  readonly token: Comparable | undefined
  /** The whole value, as the service sends it. */
  readonly whole: Comparable
  /** The value behind its scheme word, or the value. */
  readonly rest: Comparable
  /** The lower-case scheme word of the value, when it has one. */
  readonly scheme: string | undefined
}

const noSecret: UsedSecret = {}

const collectorScheme = 'splunk'
const visible = /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/

/** What a secret guards, in the words of the log. */
export interface Guarded {
  readonly requests: string
  readonly request: string
  /** What to do when only the scheme word of a header is wrong. */
  readonly fix: string
  /** How a header is checked, with `checkTelling` as often as it takes. Left out: once, as it is. */
  readonly check?:
    ((checkTelling: (misplaced: Misplaced) => HeaderCheck, misplaced: Misplaced) => HeaderCheck) | undefined
}

/** Is told the scheme word of a header whose secret is right. */
type Misplaced = (word: string) => void
type HeaderCheck = (authorization: string | null | undefined, door: Door) => Refusal | UsedSecret

const webhook: Guarded = {
  requests: 'messages',
  request: 'message',
  fix: 'Set `secret` to the whole value of `auth`.',
}

/** Makes the check for a `secret` option. Throws `secret_missing` or `option_invalid` for a secret that can never work. */
export function createSecretCheck<Bindings>(
  secret: Secret<Bindings>,
  log: Log,
  what: Guarded = webhook,
): SecretCheck<Bindings> {
  if (secret === false) return () => noSecret
  // A log that throws must not change the answer.
  const tell = (line: string): void => guarded(() => log.error(line))
  let isTold = false
  // The answer does not say it: only who can read the log knows the secret anyway.
  const misplaced = (word: string): void => {
    if (isTold) return
    isTold = true
    // What to do about `messages are refused although their secret is right`: Only the scheme word differs. Give `secret` the whole value of `auth`.
    // With the routes for operators or metrics, send their secret as it is.
    const { requests, fix } = what
    tell(`${requests} are refused although their secret is right: the header has ${word} as its scheme word. ${fix}`)
  }
  if (typeof secret !== 'function') return checkFor(secret, misplaced, what)

  let known: { readonly of: string; readonly check: HeaderCheck } | undefined
  let complained = false
  return async (authorization, door, env) => {
    try {
      const value = await secret(env)
      const of = JSON.stringify(value) ?? ''
      if (known?.of !== of) known = { of, check: checkFor(value, misplaced, what) }
      complained = false
    } catch (error) {
      // Logged once, until there is a secret again. The text of the error can quote the secret, so the log has only its name.
      // What to do about `every message is refused: …`: Your `secret` function threw or returned nothing usable. Every message is lost until it
      // returns a secret.
      if (!complained) tell(`every ${what.request} is refused: ${complaint(error)}`)
      complained = true
      return { error: 'secret_unavailable' }
    }
    return known.check(authorization, door)
  }
}

function complaint(error: unknown): string {
  if (error instanceof FleethookError) return withHint(error)
  return `the function given as \`secret\` threw ${error instanceof Error ? `a ${error.name}` : typeof error}.`
}

/** Throws for a value that can never work. */
function prepare(secret: unknown): readonly ExpectedSecret[] {
  const values: readonly unknown[] = Array.isArray(secret) ? secret : [secret]
  if (values.length === 0 || values.some((value) => value === '' || value === undefined || value === null)) {
    throw new FleethookError('secret_missing', `Option \`secret\` ${missing(secret)}.`, {
      hint: 'Pass the value that is set as `auth` of the webhook (is the environment variable set?), or `secret: false` to accept every request.',
    })
  }
  const isListed = Array.isArray(secret)
  return values.map((value, place) => expect(value, { place, isListed }))
}

function missing(secret: unknown): string {
  if (Array.isArray(secret)) return secret.length === 0 ? 'is an empty list' : 'is a list with an empty entry'
  return secret === '' ? 'is empty' : 'is missing'
}

function expect(value: unknown, used: UsedSecret): ExpectedSecret {
  if (typeof value !== 'string' || !visible.test(value) || value.length > mostBytes) {
    throw new FleethookError('option_invalid', `Option \`secret\` ${problemWith(value)}.`, {
      hint: `A secret is at most ${mostBytes} characters of visible ASCII, without white space at either end. If it is read from a file, trim it.`,
    })
  }
  const { scheme, rest } = splitScheme(value)
  const collector = scheme === undefined || scheme === collectorScheme
  const token = collector ? comparable(rest) : undefined
  return { used, scheme, whole: comparable(value), rest: comparable(rest), token }
}

function problemWith(value: unknown): string {
  if (typeof value !== 'string') return `must be text or a list of texts and is of type ${typeof value}`
  if (/[\r\n]$/.test(value)) return 'ends with a line break'
  if (value.trim() !== value) return 'begins or ends with white space'
  if (value.length > mostBytes) return `is longer than ${mostBytes} characters`
  return 'has a character that not every HTTP client and server passes on unchanged'
}

/** Splits `Scheme rest`. A header without a space inside has no scheme. */
function splitScheme(value: string): { readonly scheme: string | undefined; readonly rest: string } {
  const blank = value.indexOf(' ')
  if (blank < 1) return { scheme: undefined, rest: value }
  return { scheme: value.slice(0, blank).toLowerCase(), rest: value.slice(blank).trimStart() }
}

function checkFor(secret: unknown, misplaced: Misplaced, { check }: Guarded): HeaderCheck {
  const expected = prepare(secret)
  const checkTelling = (told: Misplaced): HeaderCheck => checkOf(expected, told)
  return check?.(checkTelling, misplaced) ?? checkTelling(misplaced)
}

function checkOf(expected: readonly ExpectedSecret[], misplaced: Misplaced): HeaderCheck {
  return (authorization, door) => {
    if (typeof authorization !== 'string' || authorization.trim() === '') return { error: 'authorization_missing' }

    const { scheme, rest } = splitScheme(authorization)
    const basic = scheme === 'basic' && door === 'collector'
    const token = basic ? password(rest) : rest
    const withToken = basic || scheme === collectorScheme
    const bareAllowed = door === 'root'
    let right: ExpectedSecret | undefined
    // Every candidate is compared, without an early return. So the time does not show which secret is near, or how near.
    for (const candidate of expected) {
      // One comparison is enough: after the collector's scheme word, the whole value is right exactly when the token is.
      if (withToken && candidate.token !== undefined) right = candidate.token.equals(token) ? candidate : right
      else if (bareAllowed || candidate.scheme !== undefined)
        right = candidate.whole.equals(authorization) ? candidate : right
    }
    if (right === undefined) {
      const refusal = wrong(authorization, scheme, basic, door, expected)
      const mayBeNear = refusal.error === 'authorization_scheme' || (scheme !== undefined && !withToken)
      if (mayBeNear && (scheme !== undefined || bareAllowed)) {
        let isNear = false
        for (const candidate of expected) isNear = candidate.rest.equals(rest) || isNear
        // Behind a comma it is the second of two headers, and the word before it is the first one.
        if (isNear && scheme?.endsWith(',') !== true) misplaced(shownWord(authorization, scheme, expected))
      }
      return refusal
    }
    return right.used
  }
}

/** What is before the secret can be a secret too, of this receiver or of somebody else. So only a plain word is shown. */
function shownWord(authorization: string, scheme: string | undefined, expected: readonly ExpectedSecret[]): string {
  if (scheme === undefined) return 'no'
  const word = authorization.slice(0, scheme.length)
  const isPlain = /^[a-z-]{1,20}$/i.test(word) && !expected.some((candidate) => candidate.rest.equals(word))
  return isPlain ? word : 'something else'
}

function password(credentials: string): string {
  try {
    return /:(.*)/s.exec(atob(credentials))?.[1] ?? ''
  } catch {
    return ''
  }
}

function wrong(
  authorization: string,
  scheme: string | undefined,
  basic: boolean,
  door: Door,
  expected: readonly ExpectedSecret[],
): Refusal {
  const plain = expected.some((candidate) => candidate.token !== undefined)
  const bare = expected.some((candidate) => candidate.scheme === undefined) && door === 'root'
  const known =
    scheme === undefined
      ? bare
      : ((scheme === collectorScheme || basic) && plain) || expected.some((candidate) => candidate.scheme === scheme)
  const half = authorization.length >> 1
  const isDoubled = authorization[half] === ',' && authorization.slice(0, half) === authorization.slice(half + 1)
  const hint =
    isDoubled || authorization.includes(', ')
      ? 'The request has two Authorization headers. Something between the service and the receiver adds one.'
      : known
        ? quotedHint(authorization, expected)
        : schemeHint(scheme, door, plain)
  return { error: known ? 'secret_wrong' : 'authorization_scheme', hint }
}

function quotedHint(authorization: string, expected: readonly ExpectedSecret[]): string | undefined {
  const quoted = /^(["'])(.*)\1$/.exec(authorization)?.[2]
  if (quoted === undefined || !expected.some((candidate) => candidate.whole.equals(quoted))) return undefined
  return 'The value is right, but in quotes. Set `auth` of the webhook without quotes.'
}

function schemeHint(scheme: string | undefined, door: Door, plain: boolean): string {
  if (scheme === undefined) {
    return door === 'collector'
      ? 'On the collector\'s paths a scheme word comes before the secret: "Authorization: Splunk <secret>".'
      : 'The secret of this receiver begins with a scheme word, but the header does not. Set `auth` of the webhook to the whole secret.'
  }
  return plain
    ? 'The header begins with a scheme word, but the secret of this receiver does not. Set `auth` of the webhook to exactly the secret, or pass the secret with the scheme word to the receiver.'
    : 'The header and the secret of this receiver begin with different scheme words.'
}

const mostBytes = 1024

/** Texts are padded to at least this many bytes. Not more, because comparing is most of the cost of reading a header. */
const leastBytes = 128

// On Node and Bun the library is native. `imports` of package.json gives bundles and Deno its file that needs only Buffers.
const { Buffer: HostBuffer }: typeof globalThis & { readonly Buffer?: { from(bytes: ArrayBuffer): Uint8Array } } =
  globalThis

const equalBytes = comparesHere() ? timingSafeEqual : equalInConstantTime

/** Edge runtimes without Buffers load the library, but it cannot compare there. */
function comparesHere(): boolean {
  try {
    return timingSafeEqual(bytesOf(1), bytesOf(1))
  } catch {
    return false
  }
}

/** What the library does, without Buffers. */
function equalInConstantTime(a: Uint8Array, b: Uint8Array): boolean {
  let difference = 0
  for (let at = 0; at < a.length; at += 1) difference |= (a[at] ?? 0) ^ (b[at] ?? 0)
  return difference === 0
}

function bytesOf(length: number): Uint8Array {
  const buffer = new ArrayBuffer(length)
  return HostBuffer ? HostBuffer.from(buffer) : new Uint8Array(buffer)
}

const encoder = new TextEncoder()

/** A secret that is ready to be compared. */
interface Comparable {
  /** Whether `text` is the secret. The time does not depend on how much of it is right. */
  equals(text: string): boolean
}

export function comparable(secret: string): Comparable {
  // Padded with zeros, so the time of a comparison shows only this size: the power of two above the secret's length.
  let size = leastBytes
  while (size < secret.length) size *= 2
  const expected = bytesOf(size)
  const { written: length } = encoder.encodeInto(secret, expected)
  // Comparing is synchronous, so all requests can share it.
  const offered = bytesOf(size)
  return {
    equals(text) {
      offered.fill(0)
      const { read, written } = encoder.encodeInto(text, offered)
      const same = equalBytes(offered, expected)
      return same && read === text.length && written === length
    },
  }
}
