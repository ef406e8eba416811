import * as fc from 'fast-check'
import { split, splitValue, type Split } from 'fleethook/normalize'
import { describe, expect, test } from 'vitest'

const summary = ({ pieces, broken }: Split) => [pieces.map(({ value }) => value), broken?.index]

describe('one object, several one after another, or a list', () => {
  test.each([
    ['a byte order mark before it', '\ufeff{"a":1}', 1],
    ['a byte order mark before several', '\ufeff{"a":1}{"a":2}', 2],
    ['an empty list', '[]', 0],
    ['an empty list with blanks', ' [ ] ', 0],
  ])('%s', (_, text, count) => {
    const result = split(text)
    expect(summary(result)).toEqual([Array.from({ length: count }, (_value, index) => ({ a: index + 1 })), undefined])
  })

  test('brackets and quotes within strings are text', () => {
    const objects = [{ '}{': '][{"' }, { a: '\\"}', b: '\\' }, { c: [{ d: {} }, ']'] }]
    expect(summary(split(objects.map((object) => JSON.stringify(object)).join('')))).toEqual([objects, undefined])
  })
})

describe('pieces before a broken one are kept, and its 0-based number is returned', () => {
  test.each([
    ['no JSON within its brackets', '{"a":1}{a:2}{"a":3}', 1, 1],
    ['a comma between', '{"a":1},{"a":2}', 1, 1],
    ['text after it', '{"a":1} x', 1, 1],
    ['a scalar after it', '{"a":1}5', 1, 1],
    ['a list after it', '{"a":1}[{"a":2}]', 1, 1],
    ['a bare scalar', '5', 0, 0],
    ['a bare string', '"{}"', 0, 0],
    ['null', 'null', 0, 0],
    ['nothing', '', 0, 0],
    ['blanks', '  ', 0, 0],
    ['no JSON', 'a=1&b=2', 0, 0],
    ['a scalar in a list', '[{"a":1},5,{"a":2}]', 1, 1],
    ['null in a list', '[null]', 0, 0],
    ['a list in a list', '[{"a":1},[{"a":2}]]', 1, 1],
    ['a list that is not closed', '[{"a":1},{"a":2}', 2, 2],
    ['a list truncated within a piece', '[{"a":1},{"a":', 1, 1],
    ['a comma at the end of a list', '[{"a":1},]', 1, 1],
    ['no comma in a list', '[{"a":1}{"a":2}]', 1, 1],
    ['text after a list', '[{"a":1}]x', 1, 1],
    ['a list that is only opened', '[', 0, 0],
    ['brackets of two kinds', '{"a":1}{"a":[}', 1, 1],
  ])('%s', (_, text, kept, broken) => {
    const result = split(text)
    expect([result.pieces.length, result.broken?.index]).toEqual([kept, broken])
  })
})

const object = fc
  .dictionary(fc.string(), fc.jsonValue({ maxDepth: 3 }))
  .map((value): object => JSON.parse(JSON.stringify(value)))
const blank = fc.stringMatching(/^[ \n\r\t]{0,3}$/)

test('joined messages are split again, whatever is between them', () => {
  fc.assert(
    fc.property(
      fc.array(object, { minLength: 1 }),
      blank,
      fc.constantFrom(undefined, 2),
      (objects, between, indent) => {
        const texts = objects.map((value) => JSON.stringify(value, null, indent))
        for (const text of [between + texts.join(between) + between, `[${texts.join(`${between},`)}]`]) {
          const { pieces, broken } = split(text)
          expect(broken).toBeUndefined()
          expect(pieces.map(({ value }) => value)).toEqual(objects)
          expect(pieces.map(({ start, end }) => text.slice(start, end))).toEqual(texts)
        }
      },
    ),
  )
})

test('any text is split or broken, and nothing throws', () => {
  const text = fc.oneof(
    fc.string(),
    fc
      .array(fc.constantFrom('{', '}', '[', ']', '"', '\\', ',', ':', '1', ' ', '{}', '"a":'))
      .map((parts) => parts.join('')),
  )
  fc.assert(
    fc.property(text, (body) => {
      const { pieces, broken } = split(body)
      for (const { value, start, end } of pieces) expect(JSON.parse(body.slice(start, end))).toEqual(value)
      expect(broken?.index ?? pieces.length).toBe(pieces.length)
    }),
    { numRuns: 2000 },
  )
})

test('cutting a body off anywhere keeps the pieces that were whole', () => {
  const sent = ['{"a":"}{"}', '{"b":[1,{"c":2}]}', '{"d":"\\\\"}']
  const text = sent.join('\n')
  for (let length = 1; length < text.length; length++) {
    const whole = sent.filter((_, index) => length >= sent.slice(0, index + 1).join('\n').length)
    const { pieces, broken } = split(text.slice(0, length))
    expect(pieces.map(({ value }) => value)).toEqual(whole.map((piece) => JSON.parse(piece)))
    const clean = text.slice(0, length).trimEnd() === whole.join('\n')
    expect(broken).toEqual(clean ? undefined : { index: whole.length })
  }
})

describe('a body that somebody else parsed', () => {
  test('an object or a list of objects; the text is JSON, written when it is read', () => {
    const { pieces, broken } = splitValue([{ a: 1 }, { b: 2 }])
    expect(broken).toBeUndefined()
    expect(pieces.map(({ value, text }) => [value, text])).toEqual([
      [{ a: 1 }, '{"a":1}'],
      [{ b: 2 }, '{"b":2}'],
    ])
    const message = { a: 1 }
    expect(splitValue(message).pieces[0]?.value).toBe(message)
  })

  test('anything else is broken at its position', () => {
    for (const value of [5, 'x', null, undefined, true])
      expect(splitValue(value)).toEqual({ pieces: [], broken: { index: 0 } })
    expect(splitValue([{}, null]).broken).toEqual({ index: 1 })
    expect(splitValue([{}, [{}]]).broken).toEqual({ index: 1 })
  })

  test('one that JSON cannot write throws when its text is read', () => {
    const [piece] = splitValue({ big: 5n }).pieces
    expect(() => piece?.text).toThrow(expect.objectContaining({ code: 'message_unreadable' }))
  })
})
