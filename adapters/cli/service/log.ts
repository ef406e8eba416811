import type { WriteStream } from 'node:tty'
import type { Log } from '../../../src/base/log.ts'
import { colorsFor } from '../colors.ts'

/** A log for somebody who waits at a terminal. */
export function logTo(stream: WriteStream): Log {
  const { yellow, red } = colorsFor(stream)
  const silent = (): void => {}
  const say =
    (word: string) =>
    (message: string, details: Record<string, unknown> = {}): void => {
      const about = Object.values(details).map((detail) => (Array.isArray(detail) ? detail.join(', ') : String(detail)))
      stream.write(`${word} ${message}${about.length === 0 ? '' : `: ${about.join(', ')}`}\n`)
    }
  return { debug: silent, info: silent, warn: say(yellow('warning:')), error: say(red('error:')) }
}
