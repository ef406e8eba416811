import { expect, test } from 'vitest'
import { escapeJson, escapeLines, jsonText } from '../../adapters/cli/terminal.ts'
import { command } from './command.ts'

/** What a terminal obeys: C0 with ESC and BEL, DEL, C1, bidirectional marks, and line separators. */
const controls = [
  ...['\u0000', '\u0007', '\u001b', '\r', '\u007f', '\u009b', '\u202e', '\u2066', '\u200f', '\u2028', '\u{e0001}'],
]

test('JSON on the terminal is the same value without anything that a terminal obeys', () => {
  const value = { [controls.join('x')]: controls, nested: [{ text: `a\nb\tc${controls.join('')}` }] }
  const text = jsonText(value)
  expect(JSON.parse(text)).toEqual(value)
  for (const control of controls) expect(text).not.toContain(control)
  const raw = JSON.stringify(value).replaceAll('\\u009b', '\u009b')
  expect(JSON.parse(escapeJson(raw))).toEqual(value)
})

test('text of several lines keeps its lines', () => {
  expect(escapeLines(`one\n\u001b[2Jtwo\u202e`)).toBe('one\n\\u001b[2Jtwo\\u202e')
})

test('errors of the command line do not obey what was given', async () => {
  const unknown = await command(['send', '--\u001b[2J\u0007'])
  expect(unknown.status).toBe(2)
  expect(unknown.stderr).toContain('\\u001b[2J\\u0007')
  const missing = await command(['dead', 'list', '--inbox', 'no\u009b2J\u202e.db'])
  expect(missing.status).toBe(1)
  expect(missing.stderr).toContain('no\\u009b2J\\u202e.db')
})
