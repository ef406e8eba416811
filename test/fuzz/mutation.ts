import { chance, oneOf, type Random, randomFrom, whole } from '../../src/service/fleet/random.ts'
import { corpus, names, values } from './corpus.ts'

/** The same run and number give the same case, so both are enough to repeat a failure. */
export function randomOfCase(run: number, number: number): Random {
  return randomFrom((run + Math.imul(number + 1, 0x9e3779b1)) | 0)
}

function pick<T>(random: Random, list: readonly T[]): T {
  const found = list[whole(random, 0, list.length - 1)]
  if (found === undefined) throw new RangeError('There is nothing to pick from.')
  return found
}

const documents: readonly unknown[] = corpus.map((text): unknown => JSON.parse(text))

/** The text of a document of the corpus, mostly with a small change. */
export function mutatedText(random: Random): string {
  const share = oneOf(random, [0, 0.01, 0.03, 0.1, 0.3])
  let text = printed(random, pick(random, documents), share, 0)
  if (chance(random, 0.15)) text = batch(random, text, share)
  if (chance(random, 0.25)) for (let left = whole(random, 1, 3); left > 0; left--) text = damaged(random, text)
  return text
}

/** Writes a value as JSON, and sometimes another value in its place. */
function printed(random: Random, value: unknown, share: number, depth: number): string {
  if (share > 0 && chance(random, share)) return instead(random, value, share, depth)
  if (Array.isArray(value)) return `[${value.map((item) => printed(random, item, share, depth + 1)).join()}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  const members: string[] = []
  for (const [key, inner] of Object.entries(value)) {
    const member = `${JSON.stringify(key)}:${printed(random, inner, share, depth + 1)}`
    if (share === 0 || !chance(random, share)) members.push(member)
    else members.push(...otherMembers(random, key, member, share))
  }
  return `{${members.join()}}`
}

function instead(random: Random, value: unknown, share: number, depth: number): string {
  const same = (): string => printed(random, value, share / 2, depth + 1)
  switch (whole(random, 0, 9)) {
    case 0:
      return `[${same()}]`
    case 1:
      return `{${JSON.stringify(pick(random, names))}:${same()}}`
    case 2:
      // As text, as some firmware sends it.
      return JSON.stringify(same())
    case 3:
      return depth > 3 ? pick(random, values) : printed(random, pick(random, documents), share / 2, depth + 1)
    case 4:
      return chance(random, 0.05) ? nested(random) : pick(random, values)
    case 5:
      return String(whole(random, -1_000_000, 1_000_000) / 10 ** whole(random, 0, 6))
    default:
      return pick(random, values)
  }
}

function nested(random: Random): string {
  const depth = oneOf(random, [10, 30, 100, 300, 1_000, chance(random, 0.1) ? 20_000 : 2_000])
  const [open, close] = oneOf(random, [
    ['[', ']'],
    ['{"a":', '}'],
    ['{"data":', '}'],
    ['{"fooValue":', '}'],
  ])
  return open.repeat(depth) + pick(random, values) + close.repeat(depth)
}

/** Replaces a member: removes it, repeats it, renames it, changes its value, or adds another one. */
function otherMembers(random: Random, key: string, member: string, share: number): readonly string[] {
  const other = (name: string): string => `${JSON.stringify(name)}:${pick(random, values)}`
  switch (whole(random, 0, 5)) {
    case 0:
      return []
    case 1:
      return [member, member]
    case 2:
      return [member, other(key)]
    case 3:
      return [`${JSON.stringify(pick(random, names))}${member.slice(JSON.stringify(key).length)}`]
    case 4: {
      const swapped = chance(random, 0.5) ? key.toUpperCase() : ` ${key}`
      return [`${JSON.stringify(swapped)}${member.slice(JSON.stringify(key).length)}`]
    }
    default:
      return chance(random, share) ? many(random, member) : [member, other(pick(random, names))]
  }
}

function many(random: Random, member: string): readonly string[] {
  const start = whole(random, 0, 1_000)
  return [member, ...Array.from({ length: 200 }, (_, number) => `"${start + number}":${pick(random, values)}`)]
}

function batch(random: Random, text: string, share: number): string {
  const texts = Array.from({ length: whole(random, 1, 4) }, () =>
    printed(random, pick(random, documents), share / 2, 0),
  )
  texts.splice(whole(random, 0, texts.length), 0, text)
  if (chance(random, 0.4)) return `[${texts.join(oneOf(random, [',', ' , ', ',\n', ',,', ' ']))}]`
  return texts.join(oneOf(random, ['', '\n', ' ', '\r\n\t', ',', '\ufeff', '\0', '\u00a0', '\n\n\n', ';']))
}

const pieces = [
  ...['{', '}', '[', ']', '"', ',', ':', '\\', '\\u', '\\ud83d', '\\"', '\0', '\ufeff', '\ud800', '\udfff', '🚗', 'é'],
  ...['\u2028', ' ', '\n', '\t', '\v', '\u00a0', '1e999', '-', '00', 'NaN', 'Infinity', 'undefined', 'nul', "'"],
  ...['/*', '//'],
  ...['{}', '[]', '""', '{"a":1}', '}{', '][', ',,', '"}', '\x1f\x8b', 'data=', '--boundary'],
] as const

/** A text with a piece removed, inserted, repeated or moved. */
function damaged(random: Random, text: string): string {
  const at = whole(random, 0, text.length)
  const end = Math.min(text.length, at + whole(random, 0, oneOf(random, [1, 4, 30, 1_000])))
  switch (whole(random, 0, 6)) {
    case 0:
      return text.slice(0, at)
    case 1:
      return text.slice(at)
    case 2:
      return text.slice(0, at) + text.slice(end)
    case 3:
      return text.slice(0, end) + text.slice(at)
    case 4:
      return (
        text.slice(0, at) +
        String.fromCharCode(whole(random, 0, chance(random, 0.5) ? 127 : 65_535)) +
        text.slice(at + 1)
      )
    case 5:
      return chance(random, 0.5) ? `\ufeff${text}` : oneOf(random, [' ', '\n', '\t']) + text
    default:
      return text.slice(0, at) + pick(random, pieces) + text.slice(at)
  }
}

const encoder = new TextEncoder()

/** Sequences that are no UTF-8, or hardly. */
const sequences = [
  ...[[0xff], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xf4, 0x90, 0x80, 0x80], [0xe2, 0x82], [0xf0, 0x9f, 0x9a], [0x80]],
  [0],
  ...[
    [0xef, 0xbb, 0xbf],
    [0xff, 0xfe],
    [0xfe, 0xff],
    [0x1f, 0x8b],
  ],
]

/** The bytes of a text, mostly unchanged, sometimes with a change. */
export function mutatedBytes(random: Random, text: string): Uint8Array<ArrayBuffer> {
  let bytes = encoder.encode(text)
  if (chance(random, 0.75)) return bytes
  for (let left = whole(random, 1, 3); left > 0; left--) bytes = damagedBytes(random, bytes)
  return bytes
}

/** Bytes with one flipped, some removed, or some inserted. */
export function damagedBytes(random: Random, bytes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  const at = whole(random, 0, bytes.length)
  switch (whole(random, 0, 3)) {
    case 0:
      return bytes.slice(0, at)
    case 1:
      return at < bytes.length ? bytes.with(at, whole(random, 0, 255)) : bytes
    case 2:
      return Uint8Array.from([...bytes.subarray(0, at), ...bytes.subarray(at + whole(random, 1, 3))])
    default:
      return Uint8Array.from([...bytes.subarray(0, at), ...pick(random, sequences), ...bytes.subarray(at)])
  }
}
