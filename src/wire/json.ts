interface Frame {
  readonly container: object
  readonly keys: readonly string[] | undefined
  readonly items: readonly unknown[]
  next: number
}

function frameOf(container: object, isCanonical: boolean): Frame {
  if (Array.isArray(container)) return { container, keys: undefined, items: container, next: 0 }
  const all = Object.entries(container)
  const entries = isCanonical
    ? all.toSorted(([a], [b]) => (a < b ? -1 : 1))
    : all.filter(([, value]) => isWritten(value))
  return { container, keys: entries.map(([key]) => key), items: entries.map(([, value]) => value), next: 0 }
}

/** Whether JSON has the property of an object with this value. */
function isWritten(value: unknown): boolean {
  return value !== undefined && typeof value !== 'function' && typeof value !== 'symbol'
}

function scalar(value: unknown, isCanonical: boolean): string {
  if (!isCanonical) return JSON.stringify(value) ?? 'null'
  // JSON cannot hold these values, so no message has them. If one comes anyway, it must not end the process.
  return typeof value === 'bigint' ? value.toString() : (JSON.stringify(value) ?? typeof value)
}

/** Writes JSON text. It keeps its own stack, because a message can be nested deeper than the call stack allows. */
function write(value: unknown, isCanonical: boolean): string {
  const parts: string[] = []
  const stack: Frame[] = []
  const open = new Set<object>()
  let current = value
  for (;;) {
    if (typeof current === 'object' && current !== null && !open.has(current)) {
      const frame = frameOf(current, isCanonical)
      open.add(current)
      stack.push(frame)
      parts.push(frame.keys ? '{' : '[')
    } else {
      parts.push(typeof current === 'object' && current !== null ? 'itself' : scalar(current, isCanonical))
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

/** JSON text with sorted keys, of any value. */
export function canonicalText(value: unknown): string {
  return write(value, true)
}

/** Like `JSON.stringify`, for a value from a JSON parser at any depth. Throws when JSON cannot hold the value. */
export function jsonText(value: object): string {
  try {
    return JSON.stringify(value)
  } catch (error) {
    if (error instanceof RangeError) return write(value, false)
    throw error
  }
}
