import { FleethookError, withHint } from '../base/errors.ts'
import { defined } from '../base/options.ts'
import { escapeControls } from '../events/summarize.ts'

/** The longest part of an error's text that a log line shows, in characters. */
const mostText = 300

/** What a log may show: name and place, and the first line of an error with a `code`. Others can quote a payload. */
export function failureDetails(error: unknown, showText: boolean, vin?: string): Record<string, unknown> {
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
      code,
      hint: code === undefined && !showText ? 'The option logErrorText shows the text of such errors.' : undefined,
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
