import { existsSync, readFileSync } from 'node:fs'
import { parseEnv } from 'node:util'
import { InvalidArgumentError } from 'commander'
import parseDuration from 'parse-duration'
import { numberBetween, type Rule, wholeNumber } from '../../src/base/options.ts'
import type { Format, WireTopic } from '../../src/events/event.ts'
import { wireTopics } from '../../src/wire/envelope.ts'

export const formats: readonly Format[] = ['service', 'vehicle_maker', 'event_collector']

/** Reads an argument by a rule of our options. */
function numberBy(rule: Rule): (text: string) => number {
  return (text) => {
    const value = text.trim() === '' ? Number.NaN : Number(text)
    if (rule.accepts(value)) return value
    throw new InvalidArgumentError(`It ${rule.must}.`)
  }
}

/** A whole number from `least` to `most`. */
export const whole = (least: number, most?: number): ((text: string) => number) => numberBy(wholeNumber(least, most))

/** Any number from `least` to `most`. */
export const number = (least: number, most: number): ((text: string) => number) => numberBy(numberBetween(least, most))

/** Topics, separated by commas. The option can be given several times. */
export function topicList(text: string, before: readonly WireTopic[] = []): readonly WireTopic[] {
  const given = text.split(',').map((part) => {
    const known = wireTopics.find((topic) => topic === part.trim())
    if (known !== undefined) return known
    throw new InvalidArgumentError(`There is no topic "${part.trim()}". The topics are ${wireTopics.join(', ')}.`)
  })
  return [...before, ...given]
}

const isoTime = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})?)?$/

/** A time: ISO 8601 (UTC if it has no zone), or a duration before now: `90s`, `15m`, `2h`, `3d`, `1h30m`. */
export function time(text: string): Date {
  const agoMs = /^[\d.]+[a-z][\da-z. ]*$/.test(text) ? parseDuration(text) : null
  if (agoMs !== null) return new Date(Date.now() - agoMs)
  const isLocal = text.includes('T') && !/(Z|[+-]\d{2}:\d{2})$/.test(text)
  const found = new Date(isLocal ? `${text}Z` : text)
  if (isoTime.test(text) && !Number.isNaN(found.getTime())) return found
  throw new InvalidArgumentError(
    'It must be a time such as 2026-06-01T08:00:00Z, or a duration before now such as 90s, 15m, 2h or 3d.',
  )
}

/** Variables by name. Those of the process win over those of the file. */
export type Environment = (name: string) => string | undefined

/** Reads the environment, and the file `path` for variables that it does not set. The file may be missing. */
export function environment(path: string): Environment {
  const file = variablesIn(path)
  return (name) => process.env[name] || file[name] || undefined
}

/** The variables in the file `path`. The file may be missing. */
export const variablesIn = (path: string): NodeJS.Dict<string> =>
  existsSync(path) ? parseEnv(readFileSync(path, 'utf8')) : {}
