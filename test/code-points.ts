import fc from 'fast-check'

const surrogates = { from: 0xd800, to: 0xe000 }
const past = surrogates.to - surrogates.from

/** One code point: `unit: 'binary'` of fast-check, which first lists a million of them for its dangerous strings. */
export const codePoint: fc.Arbitrary<string> = fc.nat({ max: 0x10_ff_ff - past }).map(
  (index) => String.fromCodePoint(index < surrogates.from ? index : index + past),
  (text) => {
    const code = typeof text === 'string' ? text.codePointAt(0) : undefined
    if (code === undefined || String.fromCodePoint(code) !== text) throw new Error('It is no code point.')
    return code < surrogates.to ? code : code - past
  },
)
