import { constants, crc32, deflateRawSync, gunzipSync, gzipSync } from 'node:zlib'
import { createReceiver, type Receiver } from 'fleethook'
import { describe, expect, test } from 'vitest'
import { remember, streamed, streaming } from './ways.ts'

const secret = 'a-long-random-value'
const state = '{"vin":"A","state":"online"}'

interface Posted {
  readonly status: number
  readonly error: string | undefined
}

async function post(
  receiver: Receiver,
  body: ReadableStream<Uint8Array<ArrayBuffer>>,
  headers: Record<string, string> = {},
): Promise<Posted> {
  const response = await receiver.fetch(streaming('/', { authorization: secret, ...headers }, body))
  const { error }: { error?: string } = JSON.parse(await response.text())
  return { status: response.status, error }
}

/** A body that never ends, and how much of it was read. */
function endless(
  chunk: Uint8Array<ArrayBuffer>,
  first: Uint8Array<ArrayBuffer> = chunk,
): { readonly body: ReadableStream<Uint8Array<ArrayBuffer>>; readonly taken: () => number } {
  let taken = 0
  const body = new ReadableStream<Uint8Array<ArrayBuffer>>(
    {
      pull(controller) {
        controller.enqueue(taken === 0 ? first : chunk)
        taken += chunk.byteLength
      },
      // A sender that does not stop when it is told to.
      cancel: () => new Promise(() => {}),
    },
    { highWaterMark: 0 },
  )
  return { body, taken: () => taken }
}

const receiverOf = (bodyBytes: number): Receiver => createReceiver({ secret, log: remember(), limits: { bodyBytes } })
const zipped = (body: string | Uint8Array): Uint8Array<ArrayBuffer> => new Uint8Array(gzipSync(body))
const gzip = { 'content-encoding': 'gzip' }

/** One gzip member of zeros. A part is deflated once and repeated, because 512 MB would take seconds. */
function zeros(parts: number, partBytes: number): Uint8Array<ArrayBuffer> {
  const part = new Uint8Array(partBytes)
  // It ends at a byte, and refers to nothing before it.
  const deflated = deflateRawSync(part, { finishFlush: constants.Z_FULL_FLUSH })
  const end = Buffer.alloc(8)
  let checksum = 0
  for (let at = 0; at < parts; at += 1) checksum = crc32(part, checksum)
  end.writeUInt32LE(checksum)
  end.writeUInt32LE(parts * partBytes, 4)
  const head = gzipSync('').subarray(0, 10)
  const all = [head, ...Array.from({ length: parts }, () => deflated), deflateRawSync(''), end]
  return new Uint8Array(Buffer.concat(all))
}
const blanks = new TextEncoder().encode(' '.repeat(16_384))

describe('A chunked body has no Content-Length', () => {
  test('exactly at the limit it is taken, one byte more is 413', async () => {
    expect(await post(receiverOf(100), streamed(state, ' '.repeat(100 - state.length)))).toMatchObject({ status: 200 })
    expect(await post(receiverOf(100), streamed(state, ' '.repeat(101 - state.length)))).toMatchObject({ status: 413 })
  })

  test('one that never ends is 413 while it is still being sent', async () => {
    const { body, taken } = endless(blanks)
    expect(await post(receiverOf(100_000), body)).toEqual({ status: 413, error: 'body_too_large' })
    expect(taken()).toBeLessThan(100_000 + 4 * blanks.byteLength)
  })

  test('one that is empty is 400, code 5', async () => {
    expect(await post(receiverOf(100), streamed())).toEqual({ status: 400, error: 'body_empty' })
    expect(await post(receiverOf(100), streamed(''), gzip)).toEqual({ status: 400, error: 'body_gzip_broken' })
  })

  test('one with a length beside its chunks is held to the limit all the same', async () => {
    const { body, taken } = endless(blanks)
    const headers = { 'content-length': '10', 'transfer-encoding': 'chunked' }
    expect(await post(receiverOf(100_000), body, headers)).toMatchObject({ status: 413 })
    expect(taken()).toBeLessThan(100_000 + 4 * blanks.byteLength)
  })

  test('one with a length that is not a number is read to its end', async () => {
    expect(await post(receiverOf(100), streamed(state), { 'content-length': 'much' })).toMatchObject({ status: 200 })
  })
})

describe('The limit counts inflated bytes', () => {
  test('exactly at the limit it is taken, one byte more is 413, however it is cut', async () => {
    for (const [size, status] of [
      [100_000, 200],
      [100_001, 413],
    ] as const) {
      const bytes = zipped(state.padEnd(size))
      const single = Array.from(bytes, (byte) => Uint8Array.of(byte))
      expect(await post(receiverOf(100_000), streamed(bytes), gzip)).toMatchObject({ status })
      expect(await post(receiverOf(100_000), streamed(...single), gzip)).toMatchObject({ status })
    }
  })

  test('a bomb is 413 before it is inflated', async () => {
    const bomb = zeros(32, 16 * 1_048_576)
    expect(gunzipSync(zeros(3, 100_000))).toEqual(Buffer.alloc(300_000))
    expect(bomb.byteLength).toBeLessThan(1_048_576)
    const receiver = receiverOf(1_048_576)
    const before = process.memoryUsage()
    const start = process.cpuUsage()
    for (let turn = 0; turn < 10; turn++) {
      expect(await post(receiver, streamed(bomb), gzip)).toEqual({ status: 413, error: 'body_too_large' })
      expect(await receiver.accept({ authorization: secret, body: bomb, contentEncoding: 'gzip' })).toMatchObject({
        status: 413,
      })
    }
    // Inflating them completely would take 10 GB and several seconds.
    const after = process.memoryUsage()
    expect(after.rss - before.rss).toBeLessThan(200 * 1_048_576)
    expect(process.cpuUsage(start).user / 1000).toBeLessThan(2_000)
  })

  test.each([1, 7, 512, 50_000])('%d zeros behind gzip are padding, and anything else there is none', async (zeros) => {
    const padding = new Uint8Array(zeros)
    for (const members of [[zipped(state)], [zipped(state), zipped(state)], [zipped(state), zipped('')]]) {
      const body = new Uint8Array(Buffer.concat([...members, padding]))
      expect(await post(receiverOf(100_000), streamed(body), gzip)).toMatchObject({ status: 200 })
      const given = { authorization: secret, body, contentEncoding: 'gzip' }
      expect(await receiverOf(100_000).accept(given)).toMatchObject({ status: 200 })
      for (const junk of [
        Buffer.concat([body, Buffer.from('x')]),
        body.subarray(0, members[0]?.length ?? 0).subarray(0, -5),
      ])
        expect(await post(receiverOf(100_000), streamed(new Uint8Array(junk)), gzip)).toMatchObject({ status: 400 })
    }
    expect(await post(receiverOf(100_000), streamed(padding), gzip)).toMatchObject({ status: 400 })
  })

  test('gzip members that inflate to nothing count with the bytes that were sent', async () => {
    const { body, taken } = endless(zipped(''))
    const { status } = await post(receiverOf(10_000), body, gzip)
    expect([400, 413]).toContain(status)
    expect(taken()).toBeLessThan(20_000)
  })

  test('several gzip members are one body, which counts all of them', async () => {
    const members = new Uint8Array([...zipped(state.slice(0, 9)), ...zipped(state.slice(9)), ...zipped(' ')])
    expect(await post(receiverOf(1000), streamed(members), gzip)).toMatchObject({ status: 200 })
    expect(
      await post(receiverOf(1000), streamed(...Array.from(members, (byte) => Uint8Array.of(byte))), gzip),
    ).toMatchObject({ status: 200 })
    const blank = zipped(' '.repeat(600))
    expect(await post(receiverOf(1000), streamed(blank, zipped(state)), gzip)).toMatchObject({ status: 200 })
    expect(await post(receiverOf(1000), streamed(blank, blank, zipped(state)), gzip)).toMatchObject({ status: 413 })
    expect(await post(receiverOf(1000), streamed(members.subarray(0, -9)), gzip)).toMatchObject({ status: 400 })
  })

  test('a place that only looks like the beginning of a gzip member does not end one', async () => {
    // The extra field of the first header holds the magic number.
    const [first, ...rest] = [zipped(state), zipped(state)]
    const extra = Uint8Array.of(4, 0, 0x1f, 0x8b, 8, 0)
    const head = first.slice(0, 10)
    head[3] = 4
    const members = new Uint8Array([...head, ...extra, ...first.slice(10), ...rest.flatMap((one) => [...one])])
    expect(await post(receiverOf(10_000), streamed(members), gzip)).toMatchObject({ status: 200 })
  })
})

describe('A body of more messages than the inbox may hold', () => {
  test('is 413 before they are read', async () => {
    const receiver = createReceiver({ secret, log: remember(), limits: { pendingMessages: 10 } })
    expect(await receiver.accept({ authorization: secret, body: '{}'.repeat(10) })).toMatchObject({ status: 200 })
    await receiver.drain()
    const other = createReceiver({ secret, log: remember(), limits: { pendingMessages: 10 } })
    const answer = await other.accept({ authorization: secret, body: '{}'.repeat(11) })
    expect(answer.status).toBe(413)
    expect(answer.body).toContain('`limits.pendingMessages`')
    expect(other.stats().received).toBe(0)
  })
})

describe('Memory is bounded by `limits`', () => {
  test('waiting bytes are counted, and never exceed pendingBytes', async () => {
    const receiver = createReceiver({ secret, log: remember(), limits: { pendingBytes: 1000 }, concurrency: 1 })
    receiver.on('*', () => new Promise(() => {}))
    const statuses = new Set<number>()
    for (let turn = 0; turn < 100; turn++) {
      statuses.add((await receiver.accept({ authorization: secret, body: state })).status)
      expect(receiver.stats().pending.bytes).toBeLessThanOrEqual(1000)
    }
    expect(statuses).toEqual(new Set([200, 503]))
    expect(receiver.stats().pending.messages).toBe(Math.floor(1000 / state.length))
  })
})
