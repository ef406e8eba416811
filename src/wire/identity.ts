/** An object or a list whose text is being written. */
interface Frame {
  readonly container: object
  readonly keys: readonly string[] | undefined
  readonly items: readonly unknown[]
  next: number
}

function frameOf(container: object): Frame {
  if (Array.isArray(container)) return { container, keys: undefined, items: container, next: 0 }
  const entries = Object.entries(container).toSorted(([a], [b]) => (a < b ? -1 : 1))
  return { container, keys: entries.map(([key]) => key), items: entries.map(([, value]) => value), next: 0 }
}

function scalar(value: unknown): string {
  // JSON cannot hold these values, so no message has them. If one comes all the same, it must not end the process.
  return typeof value === 'bigint' ? value.toString() : (JSON.stringify(value) ?? typeof value)
}

/** JSON text with sorted keys. It keeps its own stack, because a message can be nested deeper than the call stack allows. */
function canonicalText(value: unknown): string {
  const parts: string[] = []
  const stack: Frame[] = []
  const open = new Set<object>()
  let current = value
  for (;;) {
    if (typeof current === 'object' && current !== null && !open.has(current)) {
      const frame = frameOf(current)
      open.add(current)
      stack.push(frame)
      parts.push(frame.keys ? '{' : '[')
    } else {
      parts.push(typeof current === 'object' && current !== null ? 'itself' : scalar(current))
    }
    for (;;) {
      const frame = stack.at(-1)
      if (frame === undefined) return parts.join('')
      if (frame.next < frame.items.length) {
        if (frame.next > 0) parts.push(',')
        const key = frame.keys?.[frame.next]
        if (key !== undefined) parts.push(JSON.stringify(key), ':')
        current = frame.items[frame.next++]
        break
      }
      parts.push(frame.keys ? '}' : ']')
      open.delete(frame.container)
      stack.pop()
    }
  }
}

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

/**
 * The id of a message's content, 32 hexadecimal digits: FNV-1a of vin, topic, time to the millisecond and the canonical
 * payload. Nothing but chance keeps the ids of different contents apart: somebody who looks for a collision can find one.
 */
export function identity(vin: string | undefined, topic: string, at: Date, payload: unknown): string {
  return fnv1a(canonicalText([vin ?? null, topic, at.getTime(), payload]))
}

/**
 * Three hexadecimal digits of the hash of a secret, without the collector's scheme word. A receiver and a sender print them,
 * so that people see whether both have the same secret. They rule out 4,095 of 4,096 other secrets and reveal nothing more.
 */
export function checkDigits(secret: string): string {
  return fnv1a(secret.replace(/^splunk +/i, '')).slice(0, 3)
}
