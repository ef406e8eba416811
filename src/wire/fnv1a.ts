const encoder = /* @__PURE__ */ new TextEncoder()

/** The offset basis of 128-bit FNV-1a in limbs of 16 bits, the lowest first. */
const basis = [0xc58d, 0x6295, 0x2175, 0x62b8, 0x0142, 0x07bb, 0x272e, 0x6c62]

/**
 * FNV-1a of a text in 128 bits, as 32 hexadecimal digits.
 *
 * The prime is 2^88 + 0x13b, so a step is one multiplication by 0x13b and one shift by 88 bits; in limbs of 16 bits that
 * is exact without BigInt, which took five times as long.
 */
export function fnv1a(text: string): string {
  const hash = [...basis]
  const limb = (at: number): number => hash[at] ?? 0
  for (const byte of encoder.encode(text)) {
    hash[0] = limb(0) ^ byte
    // What 2^88 lifts above the product: limb 5 and a half, so each gets the low half of one and the high half of the next.
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
