import { FleethookError } from '../base/errors.ts'
import { jsonText } from './json.ts'
import { isJsonObject, type JsonObject } from './record.ts'

/** One message of a body. `text.slice(start, end)` is the message as it was sent. */
export interface Piece {
  readonly value: JsonObject
  readonly start: number
  readonly end: number
}

/** The messages of a body, up to the first broken one. */
export interface Split {
  readonly pieces: readonly Piece[]
  /** The 0-based number of the first message that is not a JSON object. */
  readonly broken?: { readonly index: number }
}

const QUOTE = 34
const COMMA = 44
const OPEN_LIST = 91
const BACKSLASH = 92
const CLOSE_LIST = 93
const OPEN_OBJECT = 123
const CLOSE_OBJECT = 125

function isBlank(code: number): boolean {
  // JSON does not count the byte order mark as a blank, but some clients begin a body with it.
  return code === 32 || code === 10 || code === 13 || code === 9 || code === 0xfeff
}

function skipBlanks(text: string, from: number): number {
  let at = from
  while (at < text.length && isBlank(text.charCodeAt(at))) at++
  return at
}

/** The end of the object that begins at `start`, or -1. Looks at brackets and strings only. `JSON.parse` checks the rest. */
function endOfObject(text: string, start: number): number {
  let depth = 0
  for (let at = start; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code === QUOTE) {
      at = endOfString(text, at)
      if (at === -1) return -1
    } else if (code === OPEN_OBJECT || code === OPEN_LIST) depth++
    else if ((code === CLOSE_OBJECT || code === CLOSE_LIST) && --depth === 0) return at + 1
  }
  return -1
}

/** The quote that ends the string which begins at `start`, or -1. The runtime finds a quote faster than a loop does. */
function endOfString(text: string, start: number): number {
  let end = text.indexOf('"', start + 1)
  while (end !== -1 && isEscaped(text, end)) end = text.indexOf('"', end + 1)
  return end
}

/** Behind an odd number of backslashes, the last one is not escaped itself. */
function isEscaped(text: string, at: number): boolean {
  let first = at
  while (text.charCodeAt(first - 1) === BACKSLASH) first--
  return (at - first) % 2 === 1
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Reads one piece after another. `parsed` are the elements of a list that could be parsed as a whole. */
function scan(text: string, begin: number, parsed: readonly unknown[] | undefined): Split {
  const pieces: Piece[] = []
  const broken = (): Split => ({ pieces, broken: { index: pieces.length } })
  const list = text.charCodeAt(begin) === OPEN_LIST
  let at = list ? skipBlanks(text, begin + 1) : begin
  if (list && text.charCodeAt(at) === CLOSE_LIST)
    return skipBlanks(text, at + 1) === text.length ? { pieces } : broken()
  for (;;) {
    if (text.charCodeAt(at) !== OPEN_OBJECT) return broken()
    const end = endOfObject(text, at)
    if (end < 0) return broken()
    const value = parsed ? parsed[pieces.length] : parse(text.slice(at, end))
    if (!isJsonObject(value)) return broken()
    pieces.push({ value, start: at, end })
    at = skipBlanks(text, end)
    if (!list) {
      if (at === text.length) return { pieces }
      continue
    }
    const code = text.charCodeAt(at)
    if (code === CLOSE_LIST) return skipBlanks(text, at + 1) === text.length ? { pieces } : broken()
    if (code !== COMMA) return broken()
    at = skipBlanks(text, at + 1)
  }
}

/**
 * Splits a body into its messages. A body is one JSON object, several one after another with white space or nothing between
 * them, or a list of objects. The messages before a broken piece are kept. A scalar, a list in a list, and text that is not
 * JSON are broken pieces. An empty list has no messages. Empty text is one broken piece.
 *
 * Never throws. Takes time linear in the length of the text, at any depth of nesting.
 *
 * @example
 * ```ts
 * import { split } from 'fleethook/normalize'
 *
 * const { pieces, broken } = split('{"state":"online","vin":"A"}{"state":"asl')
 * console.log(pieces.length, broken) // 1 { index: 1 }
 * ```
 *
 * Specification: "Webhook delivery".
 */
export function split(text: string): Split {
  const start = text.charCodeAt(0) === OPEN_OBJECT ? 0 : skipBlanks(text, 0)
  const parsed = parse(start > 0 && text.charCodeAt(0) === 0xfeff ? text.slice(start) : text)
  if (isJsonObject(parsed)) {
    return { pieces: [{ value: parsed, start, end: text.trimEnd().length }] }
  }
  return scan(text, start, Array.isArray(parsed) ? parsed : undefined)
}

/** One message of a body that was already parsed. */
export interface ValuePiece {
  readonly value: JsonObject
  /** The message as JSON text. It is made when it is read. Throws `message_unreadable` when JSON cannot hold the value. */
  readonly text: string
}

function valuePiece(value: JsonObject): ValuePiece {
  let text: string | undefined
  return {
    value,
    get text(): string {
      try {
        text ??= jsonText(value)
      } catch (cause) {
        throw new FleethookError('message_unreadable', 'The parsed body has a value that JSON cannot hold.', {
          hint: 'Pass the body as it arrived, as text or bytes.',
          cause,
        })
      }
      return text
    },
  }
}

/** Like {@link split}, for a body that was already parsed: an object, or a list of objects. */
export function splitValue(value: unknown): {
  readonly pieces: readonly ValuePiece[]
  readonly broken?: { readonly index: number }
} {
  if (isJsonObject(value)) return { pieces: [valuePiece(value)] }
  if (!Array.isArray(value)) return { pieces: [], broken: { index: 0 } }
  const pieces: ValuePiece[] = []
  for (const item of value) {
    if (!isJsonObject(item)) return { pieces, broken: { index: pieces.length } }
    pieces.push(valuePiece(item))
  }
  return { pieces }
}
