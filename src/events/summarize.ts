import type { EventBase, FleetEvent } from './event.ts'
import type { FieldCatalogue } from './fields.ts'

const columns = 100
/** The vehicle's time is left out when it differs by less: clocks are never exact, and messages take time. */
const usualDelayMs = 2_000

/**
 * One line about an event, for a log or a terminal: when, which vehicle, which format, which topic, and what it says.
 *
 * The first time is `now`, in UTC. The vehicle's own time follows when it differs by two seconds or more, as a date when
 * it is on another day. The line has at most 100 columns: what does not fit is counted (`+3`) or cut (`…`). Control
 * characters are escaped, so that a message cannot write to your terminal.
 *
 * @example
 * ```ts
 * import { createReceiver, summarize } from 'fleethook'
 *
 * createReceiver({ secret: 'a-long-random-value' }).on('*', (event) => console.log(summarize(event)))
 * // 10:00:01             0FLEETV14T0000004 service   data         BatteryLevel 81.5, Gear D
 * // 10:00:07 (09:58:30)  0FLEETV14T0000004 collector connectivity wifi disconnected
 * ```
 */
export function summarize<Fields extends FieldCatalogue>(event: FleetEvent<Fields>, now: Date = new Date()): string {
  const head = [
    timeOfDay(now),
    vehicleTime(event, now).padEnd(11),
    (event.vin ?? '').padEnd(17),
    (event.format ?? '').replace('vehicle_', '').replace('event_', '').padEnd(9),
    event.topic.padEnd(12),
  ].map(escapeControls)
  const start = `${head.join(' ')} `
  const line = start + fitting(parts(event).map(escapeControls), Math.max(20, columns - start.length))
  return line.length <= columns ? line.trimEnd() : `${line.slice(0, columns - 1)}…`
}

const timeOfDay = (time: Date): string => time.toISOString().slice(11, 19)

function vehicleTime({ topic, at }: Pick<FleetEvent, 'topic'> & Pick<EventBase, 'at'>, now: Date): string {
  if (topic === 'gap' || Math.abs(now.getTime() - at.getTime()) < usualDelayMs) return ''
  const [day, today] = [at, now].map((time) => time.toISOString().slice(0, 10))
  return day === today ? `(${timeOfDay(at)})` : (day ?? '')
}

/** What an event says, in parts. A line shows as many as fit. */
function parts<Fields extends FieldCatalogue>(event: FleetEvent<Fields>): readonly string[] {
  switch (event.topic) {
    case 'data':
      return withValuesFirst(Object.entries(event.data)).map(([field, value]) => `${field} ${shown(value)}`)
    case 'state':
      return [event.state]
    case 'vehicle_data':
      return [`a document with ${count(Object.keys(event.vehicleData).length, 'section')}`]
    case 'alerts':
      return event.alerts.map(({ name, endedAt }) => `${name} ${endedAt === undefined ? 'began' : 'ended'}`)
    case 'errors':
      return event.errors.map(({ name }) => name)
    case 'connectivity':
      return [`${event.networkInterface} ${event.status}`]
    case 'unknown':
      return [event.reason]
    case 'facts':
      return Object.keys(event.facts)
    case 'timer':
      return ['time is up']
    case 'gap':
      // After a crash nobody can know how many messages are missing.
      return [`${event.missed || 'some'} missing (${event.reason})`, `since ${timeOfDay(event.from)}`]
  }
}

/** Not all fields may fit into the line, so fields without a value go last. */
function withValuesFirst(fields: readonly (readonly [string, unknown])[]): readonly (readonly [string, unknown])[] {
  const isEmpty = ([, value]: readonly [string, unknown]): boolean => value === null || value === undefined
  return [...fields.filter((field) => !isEmpty(field)), ...fields.filter(isEmpty)]
}

const count = (n: number, word: string): string => `${n} ${word}${n === 1 ? '' : 's'}`

function shown(value: unknown): string {
  if (typeof value === 'number') return String(Math.round(value * 1_000) / 1_000)
  if (value === null || value === undefined) return 'none'
  if (typeof value !== 'object') return String(value)
  if ('latitude' in value && 'longitude' in value)
    return [value.latitude, value.longitude].map((degrees) => Number(degrees).toFixed(4)).join(' ')
  const entries = Object.entries(value)
  if (entries.length > 0 && entries.every(([, each]) => typeof each === 'boolean'))
    return entries.flatMap(([name, isSet]) => (isSet ? [name] : [])).join(' ') || 'none'
  return JSON.stringify(value)
}

/** As many parts as fit, and the number of the others. */
function fitting([first = '', ...others]: readonly string[], room: number): string {
  const more = (left: number): string => (left === 0 ? '' : `, +${left}`)
  let text = first
  let left = others.length
  if (text.length + more(left).length > room) text = `${text.slice(0, room - more(left).length - 1)}…`
  for (const part of others) {
    const longer = `${text}, ${part}`
    if (longer.length + more(left - 1).length > room) continue
    text = longer
    left -= 1
  }
  return text + more(left)
}

/** Control, format and line-separating characters as `\u…`: a terminal would obey them. */
export function escapeControls(text: string): string {
  return text.replaceAll(
    /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu,
    (character) => `\\u${(character.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`,
  )
}
