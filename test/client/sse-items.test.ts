import fc from 'fast-check'
import { systemClock } from '../../src/base/clock.ts'
import { readSseItems } from '../../src/service/client/sse-items.ts'
import { expect, test } from 'vitest'
import { rejection } from './stub.ts'

interface Item {
  readonly id: string | undefined
  readonly event: string | undefined
  readonly data: string
}

const lines = fc.string({ unit: 'grapheme' }).map((text) => text.replace(/[\r\n\0]/g, ' '))
const word = fc.stringMatching(/^[a-z0-9-]{1,12}$/)
const one: fc.Arbitrary<Item> = fc.record({
  id: fc.option(word, { nil: undefined }),
  event: fc.option(word, { nil: undefined }),
  data: fc.oneof(
    fc.json(),
    fc.array(lines, { minLength: 1, maxLength: 3 }).map((parts) => parts.join('\n')),
    fc.constant('{"place":"Zürich 東京 🚗"}'),
  ),
})

/** What can be between items: comments, unknown fields, a `retry:` line. */
const noise = fc.constantFrom('', ':\n', ': heartbeat\n', 'retry: 100\n', 'colour: red\n', ':\n\n')

function written({ id, event, data }: Item, end: string): string {
  const fields = [
    ...(id === undefined ? [] : [`id: ${id}`]),
    ...(event === undefined ? [] : [`event:${event}`]),
    ...data.split('\n').map((line) => `data: ${line}`),
  ]
  return `${fields.join(end)}${end}${end}`
}

/** The text in chunks that end anywhere, even inside a character. */
function chunked(text: string, cuts: readonly number[]): ReadableStream<Uint8Array> {
  const bytes = new TextEncoder().encode(text)
  const places = [...new Set([0, ...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length])].toSorted(
    (a, b) => a - b,
  )
  return new ReadableStream({
    start(controller) {
      for (const [index, from] of places.slice(0, -1).entries())
        controller.enqueue(bytes.slice(from, places[index + 1]))
      controller.close()
    },
  })
}

const reading = {
  clock: systemClock,
  heartbeatTimeoutMs: 10_000,
  signal: undefined,
  onBytes: () => {},
  onRetry: () => {},
}

async function read(body: ReadableStream<Uint8Array>): Promise<readonly Item[]> {
  const items: Item[] = []
  for await (const item of readSseItems(body, reading)) {
    if (item !== undefined) items.push({ id: item.id, event: item.event, data: item.data })
  }
  return items
}

test('items are read as they were written, wherever chunks end and with every kind of line end', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(one, noise), { maxLength: 8 }),
      fc.constantFrom('\n', '\r\n', '\r'),
      fc.boolean(),
      fc.array(fc.nat(), { maxLength: 40 }),
      async (items, end, marked, cuts) => {
        const text = items.map(([item, between]) => between.replaceAll('\n', end) + written(item, end)).join('')
        // A \r at the very end may be half of a line end, which only the next byte shows.
        const whole = `${marked ? '\uFEFF' : ''}${text}:${end}`
        expect(await read(chunked(whole, cuts))).toEqual(items.map(([item]) => item))
      },
    ),
    { numRuns: 500 },
  )
})

test('any bytes are read without a failure', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.uint8Array({ maxLength: 60 }), { maxLength: 10 }), async (chunks) => {
      const body = new ReadableStream<Uint8Array>({
        start(controller) {
          for (const chunk of chunks) controller.enqueue(chunk)
          controller.close()
        },
      })
      expect(await read(body)).toBeInstanceOf(Array)
    }),
  )
})

test('an unfinished item is dropped', async () => {
  expect(await read(chunked('data: 1\n\ndata: 2\n', []))).toEqual([{ id: undefined, event: undefined, data: '1' }])
})

test('an item without an end is refused before it fills the memory, and the body is released', async () => {
  let cancelled = false
  const body = new ReadableStream<Uint8Array>({
    pull: (controller) => controller.enqueue(new TextEncoder().encode('data: '.padEnd(100_000, 'x'))),
    cancel: () => void (cancelled = true),
  })
  expect(await rejection(read(body))).toMatchObject({ code: 'answer_unreadable' })
  expect(cancelled).toBe(true)
})
