import { FleethookError } from '../base/errors.ts'
import { isJsonObject, type JsonObject } from './record.ts'

/** One message of a body: `text.slice(start, end)` is the piece as it was sent. */
export interface Piece {
  readonly value: JsonObject
  readonly start: number
  readonly end: number
}

/** The messages of a body, up to the first that is broken. */
export interface Split {
  readonly pieces: readonly Piece[]
  /** The 0-based number of the first message that is no JSON object. */
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
  // The byte order mark is no blank of JSON, but some clients begin with it.
  return code === 32 || code === 10 || code === 13 || code === 9 || code === 0xfeff
}

function skipBlanks(text: string, from: number): number {
  let at = from
  while (at < text.length && isBlank(text.charCodeAt(at))) at++
  return at
}

/** The end of the object that begins at `start`, or -1. Only brackets and strings count; `JSON.parse` judges the rest. */
function endOfObject(text: string, start: number): number {
  let depth = 0
  let inString = false
  for (let at = start; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (inString) {
      if (code === BACKSLASH) at++
      else if (code === QUOTE) inString = false
    } else if (code === QUOTE) inString = true
    else if (code === OPEN_OBJECT || code === OPEN_LIST) depth++
    else if ((code === CLOSE_OBJECT || code === CLOSE_LIST) && --depth === 0) return at + 1
  }
  return -1
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Reads piece after piece; `parsed` are the elements of a list that could be parsed as a whole. */
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
 * Takes a body apart into its messages: one JSON object, several one after another with anything blank or nothing
 * between, or a list of them. What comes before a broken piece is kept; a scalar, a list in a list, or text that is no
 * JSON is a broken piece. Never throws, takes time linear in the text, and does not mind how deep it is nested.
 * An empty list has no messages; an empty text is one broken piece.
 *
 * @example
 * ```ts
 * import { split } from 'fleethook/normalize'
 *
 * const { pieces, broken } = split('{"state":"online","vin":"A"}{"state":"asl')
 * console.log(pieces.length, broken) // 1 { index: 1 }
 * ```
 */
export function split(text: string): Split {
  const start = skipBlanks(text, 0)
  const parsed = parse(start > 0 && text.charCodeAt(0) === 0xfeff ? text.slice(start) : text)
  if (isJsonObject(parsed)) {
    let end = text.length
    while (isBlank(text.charCodeAt(end - 1))) end--
    return { pieces: [{ value: parsed, start, end }] }
  }
  return scan(text, start, Array.isArray(parsed) ? parsed : undefined)
}

/** One message of a body that somebody else parsed. */
export interface ValuePiece {
  readonly value: JsonObject
  /** The message as JSON text, written when it is read. Throws `message_unreadable` when JSON cannot write it. */
  readonly text: string
}

function valuePiece(value: JsonObject): ValuePiece {
  let text: string | undefined
  return {
    value,
    get text(): string {
      try {
        text ??= JSON.stringify(value)
      } catch (cause) {
        throw new FleethookError(
          'message_unreadable',
          'A body that was parsed before it came here cannot be written as JSON.',
          {
            hint: 'Hand over the body as it came, as text or bytes.',
            cause,
          },
        )
      }
      return text
    },
  }
}

/**
 * {@link split} for a body that somebody else parsed already: an object, or a list of objects.
 */
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
