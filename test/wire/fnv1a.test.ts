import fc from 'fast-check'
import { expect, test } from 'vitest'
import { fnv1a } from '../../src/wire/identity.ts'
import { codePoint } from '../code-points.ts'

/** The definition, in BigInt. */
function reference(text: string): bigint {
  let hash = 0x6c62272e07bb014262b821756295c58dn
  for (const byte of new TextEncoder().encode(text)) {
    hash = BigInt.asUintN(128, (hash ^ BigInt(byte)) * 0x1000000000000000000013bn)
  }
  return hash
}

test('the hash behind `id` is FNV-1a in 128 bits', () => {
  expect(fnv1a('a')).toBe('d228cb696f1a8caf78912b704e4a8964')
  expect(fnv1a('foobar')).toBe('343e1662793c64bf6f0d3597ba446f18')
  fc.assert(
    fc.property(fc.string({ unit: codePoint, maxLength: 200 }), (text) => {
      expect(fnv1a(text)).toBe(reference(text).toString(16).padStart(32, '0'))
    }),
  )
})
