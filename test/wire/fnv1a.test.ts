import reference from '@sindresorhus/fnv1a'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { fnv1a } from '../../src/wire/identity.ts'

test('the hash behind `id` is FNV-1a in 128 bits, as a library that counts in BigInt has it', () => {
  expect(fnv1a('')).toBe('6c62272e07bb014262b821756295c58d')
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 200 }), (text) => {
      expect(fnv1a(text)).toBe(reference(text, { size: 128 }).toString(16).padStart(32, '0'))
    }),
  )
})
