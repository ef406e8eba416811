import { FleethookError, withHint } from '../base/errors.ts'
import { defined } from '../base/options.ts'
import { escapeControls } from '../events/summarize.ts'

/** The longest part of an error's text that a log line shows, in characters. */
const mostText = 300

/**
 * What a log may show: name and place, and the first line of an error with a `code`. Others can quote a payload: of theirs, the plain words that are
 * not in `seen`, which is all that the handler got. Without that, no word.
 */
export function failureDetails(
  error: unknown,
  showText: boolean,
  vin?: string,
  seen?: readonly unknown[],
): Record<string, unknown> {
  try {
    if (error instanceof FleethookError) return { error: error.code, reason: withHint(error) }
    if (!(error instanceof Error))
      return defined({
        error: `a ${typeof error} was thrown`,
        reason: showText ? shown(String(error), vin) : undefined,
      })
    const code = codeOf(error)
    // An error of `fetch` has no code of its own, but its cause has one.
    const inner = code === undefined && error.cause instanceof Error ? error.cause : undefined
    const cause = inner && codeOf(inner)
    const told = inner !== undefined && cause !== undefined ? inner : code !== undefined || showText ? error : undefined
    return defined({
      error: /^[A-Z]\w{0,40}$/.test(error.name) ? error.name : 'Error',
      text: told === undefined && seen !== undefined ? plainWords(error.message, seen) : undefined,
      code,
      hint:
        code === undefined && !showText ? 'The option logErrorText shows the whole text of such errors.' : undefined,
      reason: told && shown(told.message, vin),
      cause,
      at: placeIn(error),
    })
  } catch {
    return { error: 'an error that cannot be read' }
  }
}

/** The last four characters of a VIN: enough to find a vehicle in a fleet, too few to identify it elsewhere. */
export const shownVehicle = (vin: string | undefined): string | undefined => vin && `…${escapeControls(vin.slice(-4))}`

function codeOf(error: Error): string | undefined {
  if ('code' in error && typeof error.code === 'string' && /^[\w.-]{1,60}$/.test(error.code)) return error.code
  // The databases of Workers have no property for it: `D1_ERROR: no such table: …`.
  return /^([A-Z][A-Z\d]{0,30}(?:_[A-Z\d]{1,30}){1,5}): /.exec(error.message)?.[1]
}

/** The first line of a text, without control characters and without the VIN. */
function shown(text: string, vin: string | undefined): string {
  const [line = ''] = text.split(/[\r\n]/, 1)
  const anonymous = vin === undefined || vin.length < 5 ? line : line.replaceAll(vin, `…${vin.slice(-4)}`)
  return escapeControls(anonymous.length > mostText ? `${anonymous.slice(0, mostText)}…` : anonymous)
}

/** A word of a language, or a name in code, and what may stand around it. Numbers, ids, addresses and keys are none, and what is longer may be a key. */
const plainWord = /^["'`([{]*[A-Za-z]{1,11}(?:['\u2019][a-z]{1,2})?["'`)\]}]*[.,:;!?]*$/

/** The first line of a text, with `…` for each word that is no plain one, or that was seen in a value. */
function plainWords(text: string, seen: readonly unknown[]): string | undefined {
  const [line = ''] = text.slice(0, mostText).split(/[\r\n]/, 1)
  const words = line.split(/\s+/).filter((word) => word !== '')
  if (!words.some((word) => plainWord.test(word))) return undefined
  const texts = textsOf(seen)
  const isQuoted = (word: string): boolean => {
    const bare = lettersOf(word)
    // A short one is in every text.
    return texts.some((each) =>
      bare.length < 3 ? each.split(/[^a-z]+/).includes(bare) : lettersOf(each).includes(bare),
    )
  }
  const shownWords = words.map((word) => (plainWord.test(word) && !isQuoted(word) ? word : '…'))
  return shownWords.filter((word, at) => word !== '…' || shownWords[at - 1] !== '…').join(' ')
}

const lettersOf = (text: string): string => text.toLowerCase().replaceAll(/[^a-z]/g, '')

/** What has text, in lower case: values, and names that no catalogue has. */
function textsOf(seen: readonly unknown[]): readonly string[] {
  const texts = new Set<string>()
  const note = (name: string, value: unknown): unknown => {
    if (typeof value === 'string') texts.add(value.toLowerCase())
    if (!/^(?:[A-Z][A-Za-z\d]{1,40}|\d*|vin|createdAt|data|state|errors|alerts|value|name)$/.test(name))
      texts.add(name.toLowerCase())
    return value
  }
  JSON.stringify(seen, note)
  return [...texts]
}

/** File, line and column of the innermost frame. A stack begins with the message, which can look like frames. */
function placeIn({ stack, message }: Error): string | undefined {
  if (typeof stack !== 'string' || !stack.includes(message)) return undefined
  const frames = stack.slice(stack.indexOf(message) + message.length).split('\n')
  for (const frame of frames) {
    const [, place] = /^\s+at (?:.* \()?((?:file:|node:|\/|[A-Za-z]:\\)[^()\s]*:\d+:\d+)\)?$/.exec(frame) ?? []
    if (place !== undefined) return place
  }
  return undefined
}
