import { systemClock } from '../../src/base/clock.ts'
import { readSseItems } from '../../src/service/client/sse-items.ts'
import { expect, test } from 'vitest'
import { rejection } from './stub.ts'

interface Item {
  readonly id: string | undefined
  readonly event: string | undefined
  readonly data: string
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

test('an unfinished item is dropped', async () => {
  const body = new Blob(['data: 1\n\ndata: 2\n']).stream()
  expect(await read(body)).toEqual([{ id: undefined, event: undefined, data: '1' }])
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
