import { fnv1a } from './fnv1a.ts'

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
  // What JSON cannot hold has no place in a message; it must only not end the process.
  return typeof value === 'bigint' ? value.toString() : (JSON.stringify(value) ?? typeof value)
}

/** JSON text with sorted keys. With a stack of its own: a message can be nested deeper than calls can. */
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

/**
 * The identity of a message's content, 32 hexadecimal digits: FNV-1a of vin, topic, time to the millisecond and the
 * canonical payload. It tells equal from different; it is no defence against somebody who looks for collisions.
 */
export function identity(vin: string | undefined, topic: string, at: Date, payload: unknown): string {
  const text = canonicalText([vin ?? null, topic, at.getTime(), payload])
  return fnv1a(text)
}
