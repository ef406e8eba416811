import type { WriteStream } from 'node:tty'
import picocolors from 'picocolors'
import { FleethookError, withHint } from '../../src/base/errors.ts'
import type { Log } from '../../src/base/log.ts'
import { escapeControls } from '../../src/events/summarize.ts'

export type Colors = ReturnType<typeof picocolors.createColors>

/** Colors for a stream that shows them. `NO_COLOR`, `FORCE_COLOR` and `TERM=dumb` decide first. */
export function colorsFor(stream: WriteStream): Colors {
  // A stream that is no terminal has no `hasColors`, although the types say so.
  return picocolors.createColors(stream.isTTY ? stream.hasColors() : Boolean(process.env['FORCE_COLOR']))
}

export function printError(error: { readonly message: string; readonly hint?: string | undefined }): void {
  console.error(`${colorsFor(process.stderr).red('error:')} ${escapeControls(withHint(error))}`)
}

/** Prints a `FleethookError` for people, or as JSON, and returns the exit status. Throws any other error. */
export function report(error: unknown, asJson: boolean): number {
  if (!(error instanceof FleethookError)) throw error
  const { code, message, hint } = error
  if (asJson) console.log(jsonText({ error: { code, message, hint } }))
  else printError(error)
  return 1
}

/** Text of several lines that cannot control the terminal. */
export function escapeLines(text: string): string {
  return text.split('\n').map(escapeControls).join('\n')
}

/** A word that a shell takes as it is, whatever is in it: people paste the commands that we print. */
export function inShell(word: string): string {
  const safe = /^[\w./:@+=,-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`
  return word.startsWith('-') ? `./${safe}` : safe
}

/** Help text in lines of at most this width: paragraphs are filled, and a long command goes on in the next line. */
export function filled(text: string, width: number): string {
  const lines: string[] = []
  let prose = ''
  const endProse = (): void => {
    if (prose !== '') lines.push(...wrapped(prose, width, '', ''))
    prose = ''
  }
  for (const line of text.split('\n')) {
    if (/^\S/.test(line)) {
      prose += prose === '' ? line : ` ${line}`
      if (line.endsWith(':')) endProse()
      continue
    }
    endProse()
    const indent = /^ */.exec(line)?.[0] ?? ''
    const isCommand = /^ +(?:fleethook|npx|source|curl) /.test(line)
    lines.push(...(line.length <= width ? [line] : wrapped(line.trim(), width, indent, isCommand ? ' \\' : '')))
  }
  endProse()
  return lines.join('\n')
}

/** Breaks at spaces. Lines after the first are indented further, and every line but the last ends with `end`. */
function wrapped(text: string, width: number, indent: string, end: string): readonly string[] {
  const lines: string[] = []
  let line = indent
  for (const word of text.split(/ +/)) {
    const isFirst = line.trim() === ''
    if (!isFirst && line.length + 1 + word.length + end.length > width) {
      lines.push(line + end)
      line = `${indent}${indent === '' ? '' : '  '}${word}`
    } else line += isFirst ? word : ` ${word}`
  }
  return [...lines, line]
}

/** A value as JSON that cannot control the terminal. */
export function jsonText(value: unknown): string {
  return escapeJson(JSON.stringify(value, undefined, 2))
}

/** JSON of the same value that cannot control the terminal: JSON can write each character inside a text as an escape. */
export function escapeJson(json: string): string {
  const escaped = (character: string): string =>
    Array.from({ length: character.length }, (_, at) => `\\u${hex(character.charCodeAt(at))}`).join('')
  return json.replace(/[^\n\t\P{Cc}]|[\p{Cf}\p{Zl}\p{Zp}]/gu, escaped)
}

const hex = (code: number): string => code.toString(16).padStart(4, '0')

export function logTo(stream: WriteStream): Log {
  const { yellow, red } = colorsFor(stream)
  const silent = (): void => {}
  const say =
    (word: string) =>
    (message: string, details: Record<string, unknown> = {}): void => {
      const about = Object.values(details).map((detail) => (Array.isArray(detail) ? detail.join(', ') : String(detail)))
      stream.write(`${word} ${escapeControls(`${message}${about.length === 0 ? '' : `: ${about.join(', ')}`}`)}\n`)
    }
  return { debug: silent, info: silent, warn: say(yellow('warning:')), error: say(red('error:')) }
}

/** `2026-11-21 10:00:01`, in UTC. */
export const timeOf = (iso: string | null): string => iso?.replace('T', ' ').slice(0, 19) ?? ''

/** Rows with their cells in columns. A cell cannot control the terminal. */
export function columns(rows: readonly (readonly string[])[]): string {
  const safe = rows.map((row) => row.map(escapeControls))
  const widths: number[] = []
  for (const row of safe)
    for (const [index, cell] of row.entries()) widths[index] = Math.max(widths[index] ?? 0, cell.length)
  const line = (row: readonly string[]): string => row.map((cell, index) => cell.padEnd(widths[index] ?? 0)).join('  ')
  return safe.map((row) => line(row).trimEnd()).join('\n')
}

/** Rows under a heading. A line that is wider than the terminal is cut. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  // A terminal without a size has 0 columns.
  const width = (process.stdout.isTTY && process.stdout.columns) || Infinity
  return columns([head, ...rows])
    .split('\n')
    .map((line) => (line.length > width ? `${line.slice(0, width - 1)}…` : line))
    .join('\n')
}
