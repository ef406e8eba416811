import { canonicalText } from './json.ts'

const encoder = /* @__PURE__ */ new TextEncoder()

/** The offset basis of 128-bit FNV-1a in limbs of 16 bits, the lowest first. */
const basis = [0xc58d, 0x6295, 0x2175, 0x62b8, 0x0142, 0x07bb, 0x272e, 0x6c62]

/**
 * The FNV-1a hash of a text: 128 bits as 32 hexadecimal digits.
 *
 * The prime is 2^88 + 0x13b, so a step is one multiplication by 0x13b and one shift by 88 bits. In limbs of 16 bits that is
 * exact without BigInt, which takes five times as long.
 */
export function fnv1a(text: string): string {
  const hash = [...basis]
  const limb = (at: number): number => hash[at] ?? 0
  for (const byte of encoder.encode(text)) {
    hash[0] = limb(0) ^ byte
    // A shift by 88 bits is five and a half limbs. So each upper limb gets the low half of one limb and the high half of the next.
    const [low, middle, high] = [limb(0), limb(1), limb(2)]
    let carry = 0
    for (let at = 0; at < 8; at++) {
      carry += limb(at) * 0x13b
      if (at === 5) carry += (low << 8) & 0xffff
      else if (at === 6) carry += ((low >>> 8) | (middle << 8)) & 0xffff
      else if (at === 7) carry += ((middle >>> 8) | (high << 8)) & 0xffff
      hash[at] = carry & 0xffff
      carry >>>= 16
    }
  }
  return hash.reduceRight((digits, value) => digits + value.toString(16).padStart(4, '0'), '')
}

/** The id of a content: FNV-1a of vin, topic, time in ms and payload. Somebody who looks for a collision finds one. */
export function identity(vin: string | undefined, topic: string, at: Date, payload: unknown): string {
  return fnv1a(canonicalText([vin ?? null, topic, at.getTime(), payload]))
}
