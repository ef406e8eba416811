import { gzipSync } from 'node:zlib'
import fc from 'fast-check'
import { createReceiver, type Log, type Receiver } from 'fleethook'
import { Hono } from 'hono'
import { describe, expect, test } from 'vitest'
import { inForm } from '../form.ts'
import { expectNoLeftovers } from './leftovers.ts'
import { readAnswer } from './answer.ts'
import { bodies, headers, jsonTexts, methods, paths } from './arbitrary.ts'

const secret = 'a-long-random-value'
const limits = { bodyBytes: 20_000, pendingMessages: 50, pendingBytes: 40_000 }

expectNoLeftovers()

/** Neither a sent value nor the secret may be in a log. */
const marker = 'PAYLOAD-MARKER'
const log: Log = (() => {
  const look = (message: string, details?: unknown): void => {
    expect(`${message} ${JSON.stringify(details)}`).not.toMatch(new RegExp(`${secret}|${marker}`))
  }
  return { debug: look, info: look, warn: look, error: look }
})()

function tested(): Receiver {
  return createReceiver({ secret, log, limits, retry: { attempts: 1 } })
    .on('*', () => {})
    .on('malformed', () => {})
}

/** Answers of a host in which the receiver is mounted. */
const hostsOwn = '{"error":"host"}'

/** Promises that hold for every answer to any request. */
function checkAnswer(status: number, text: string, method = 'POST'): void {
  if (text !== hostsOwn) expect(readAnswer(status, text, method)).toBeTypeOf('object')
  expect(text).not.toContain(secret)
  expect(text).not.toContain(marker)
}

function checkPending(receiver: Receiver): void {
  const { messages, bytes } = receiver.stats().pending
  expect(messages).toBeLessThanOrEqual(limits.pendingMessages)
  expect(bytes).toBeLessThanOrEqual(limits.pendingBytes)
}

const nextTask = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

describe('Every request gets a JSON answer with a code, no 5xx but 503, and nothing crashes', () => {
  test('bytes, headers, methods and paths, by fetch and by routes()', async () => {
    const receiver = tested()
    const host = new Hono().route('/', receiver.routes()).notFound(() => new Response(hostsOwn, { status: 404 }))
    await fc.assert(
      fc.asyncProperty(
        methods,
        paths,
        headers(secret),
        bodies(marker),
        fc.boolean(),
        async (method, path, sent, body, mounted) => {
          const bodyless = method === 'GET' || method === 'HEAD'
          const request = new Request(`http://receiver.test${path}`, {
            method,
            headers: { ...sent },
            ...(bodyless ? {} : { body }),
          })
          const response = await (mounted ? host : receiver).fetch(request)
          checkAnswer(response.status, await response.text(), method)
          expect(response.headers.get('content-type')).toMatch(mounted ? /./ : /^application\/json$/)
          checkPending(receiver)
          await nextTask()
        },
      ),
      { numRuns: inForm({ short: 300, full: 3000 }) },
    )
    await receiver.drain()
    expect(receiver.stats()).toMatchObject({ pending: { messages: 0, bytes: 0 }, running: 0 })
  })

  test('streams cut anywhere, that fail anywhere, gzipped or not', async () => {
    const receiver = tested()
    await fc.assert(
      fc.asyncProperty(
        bodies(marker),
        fc.array(fc.nat(4000), { maxLength: 10 }),
        fc.constantFrom(undefined, 'gzip', 'identity'),
        fc.boolean(),
        fc.boolean(),
        async (body, cuts, encoding, zip, fails) => {
          const bytes = new Uint8Array(zip ? gzipSync(body) : body)
          const edges = [0, ...cuts.filter((cut) => cut < bytes.length).sort((a, b) => a - b), bytes.length]
          const chunks = edges.slice(1).map((end, index) => bytes.subarray(edges[index], end))
          const stream = new ReadableStream<Uint8Array<ArrayBuffer>>({
            pull(controller) {
              const chunk = chunks.shift()
              if (chunk !== undefined) controller.enqueue(chunk)
              else if (fails) controller.error(new Error('the connection broke'))
              else controller.close()
            },
          })
          const init = {
            method: 'POST',
            headers: { authorization: secret, ...(encoding === undefined ? {} : { 'content-encoding': encoding }) },
            body: stream,
            duplex: 'half',
          }
          const response = await receiver.fetch(new Request('http://receiver.test/', init))
          checkAnswer(response.status, await response.text())
          if (fails) expect(response.status).not.toBe(200)
          checkPending(receiver)
          await nextTask()
        },
      ),
      { numRuns: inForm({ short: 200, full: 1000 }) },
    )
  })

  test('JSON of every shape, on both kinds of paths, as text and parsed, in all three formats', async () => {
    const receiver = tested()
    await fc.assert(
      fc.asyncProperty(
        jsonTexts(marker),
        fc.constantFrom('/', '/services/collector'),
        fc.boolean(),
        async (text, path, parse) => {
          const body: unknown = parse ? parsed(text) : text
          const answer = await receiver.accept({ authorization: `Splunk ${secret}`, body, path })
          checkAnswer(answer.status, answer.body)
          checkPending(receiver)
          await nextTask()
        },
      ),
      { numRuns: inForm({ short: 300, full: 3000 }) },
    )
    await receiver.drain()
    expect(receiver.stats().pending).toEqual({ messages: 0, bytes: 0 })
  })

  test('any value given to accept()', async () => {
    const receiver = tested()
    const anything = fc.anything({
      withBigInt: true,
      withDate: true,
      withMap: true,
      withSet: true,
      withTypedArray: true,
      withNullPrototype: true,
      withObjectString: true,
      withSparseArray: true,
      withBoxedValues: true,
    })
    await fc.assert(
      fc.asyncProperty(
        anything,
        fc.constantFrom(null, undefined, '', 'gzip', 'br', '\0'),
        async (body, contentEncoding) => {
          const answer = await receiver.accept({ authorization: secret, body, contentEncoding })
          checkAnswer(answer.status, answer.body)
          await nextTask()
        },
      ),
      { numRuns: inForm({ short: 200, full: 2000 }) },
    )
  })
})

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

describe('Input that breaks parsers', () => {
  const deep = 100_000
  const withLargeBodies = (): Receiver =>
    createReceiver({ secret, log, limits: { bodyBytes: 4_194_304 } }).on('*', () => {})
  const state = '{"vin":"A","state":"online"}'

  test.each([
    ['lists nested deep', '['.repeat(deep) + ']'.repeat(deep), 400],
    ['lists that never end', '['.repeat(deep), 400],
    ['objects nested deep', '{"a":'.repeat(deep) + '1' + '}'.repeat(deep), undefined],
    ['objects that never end', '{"a":'.repeat(deep), 400],
    ['data nested deep', `{"vin":"A","data":{"x":${'['.repeat(deep)}${']'.repeat(deep)}}}`, undefined],
    ['an event nested deep', `{"source":"A","event":${'{"a":'.repeat(deep)}1${'}'.repeat(deep)}}`, undefined],
    ['alerts nested deep', `{"vin":"A","alerts":${'[['.repeat(deep)}${']]'.repeat(deep)}}`, undefined],
    ['a message after one nested deep', `${'{"a":'.repeat(deep)}1${'}'.repeat(deep)}${state}`, undefined],
    ['a huge string', `{"vin":"A","state":"${'x'.repeat(4_000_000)}"}`, 200],
    ['a huge key', `{"${'x'.repeat(4_000_000)}":1}`, 200],
    ['a huge number', `{"vin":"A","data":{"x":${'9'.repeat(1_000_000)}}}`, 200],
    ['very many fields', `{"vin":"A","data":{${Array.from({ length: 200_000 }, (_, n) => `"f${n}":1`).join()}}}`, 200],
    [
      'very many numeric fields',
      `{"vin":"A","data":{${Array.from({ length: 200_000 }, (_, n) => `"${n}":1`).join()}}}`,
      200,
    ],
    ['very many alerts', `{"vin":"A","alerts":[${Array.from({ length: 100_000 }, () => '{"name":"x"}').join()}]}`, 200],
    ['very many quotes', '"'.repeat(4_000_000), 400],
    ['very many backslashes', `"${'\\'.repeat(4_000_000)}`, 400],
    ['very many blanks', ' '.repeat(4_194_304), 400],
    ['very many line ends and one message', '\n'.repeat(4_000_000) + state, 200],
    ['NUL bytes', '\0'.repeat(1000), 400],
    ['a number beyond doubles', '{"vin":"A","createdAt":"2024-02-24T04:58:44Z","data":{"BatteryLevel":1e999}}', 200],
    ['a time beyond dates', '{"event":{},"source":"A","time":1e999}', 400],
    ['lone surrogates', '{"vin":"\\ud800","state":"\\udfff"}', 200],
    [
      'prototypes',
      '{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}},"vin":"A","data":{"__proto__":1,"constructor":2}}',
      200,
    ],
    ['the prototype as VIN', '{"vin":"__proto__","state":"online"}', 200],
    ['keys of Object', '{"hasOwnProperty":1,"toString":2,"valueOf":3,"vin":"toString","state":"constructor"}', 200],
  ])('%s', async (_case, body, status) => {
    const receiver = withLargeBodies()
    const started = process.cpuUsage()
    for (const path of ['/', '/services/collector']) {
      const answer = await receiver.accept({ authorization: `Splunk ${secret}`, body, path })
      checkAnswer(answer.status, answer.body)
      if (path === '/' && status !== undefined) expect(answer.status).toBe(status)
    }
    // The time is linear, so that no sender can block the process. Other work of the machine is not counted.
    const { user, system } = process.cpuUsage(started)
    expect((user + system) / 1_000).toBeLessThan(5_000)
    await receiver.drain()
    expect(receiver.stats()).toMatchObject({ pending: { messages: 0 }, deadLettersDropped: 0 })
    expect(Object.hasOwn(Object.prototype, 'polluted')).toBe(false)
  })
})
