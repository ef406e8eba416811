import fc from 'fast-check'
import { createReceiver, type Log, type Receiver } from 'fleethook'
import { describe, expect, test } from 'vitest'
import { inForm } from '../form.ts'
import { readAnswer } from './answer.ts'
import { runCases } from './cases.ts'
import { growing } from './growing.ts'
import { createHttpFace } from './http-face.ts'
import { expectNoLeftovers } from './leftovers.ts'
import { normalizerFace } from './normalizer-face.ts'

const secret = 'a-long-random-value'

expectNoLeftovers()

const log: Log = (() => {
  const look = (message: string, details?: unknown): void =>
    expect(`${message} ${JSON.stringify(details)}`).not.toContain(secret)
  return { debug: look, info: look, warn: look, error: look }
})()

/** Promises that hold for every answer to any request. */
function checkAnswer({ status, body }: Awaited<ReturnType<Receiver['accept']>>): void {
  expect(readAnswer(status, body)).toBeTypeOf('object')
  expect(body).not.toContain(secret)
}

const nextTask = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

describe('Every request gets a JSON answer with a code, no 5xx but 503, and nothing crashes', () => {
  // The campaign runs the same faces on every runtime, for much longer.
  test.each([
    ['http', createHttpFace(), inForm({ short: 300, full: 4_000 })],
    ['normalizer', normalizerFace, inForm({ short: 600, full: 8_000 })],
  ] as const)('whatever a message is: by the %s', async (_, face, cases) => {
    expect((await runCases(face, { run: 2, from: 0, cases })).failures).toEqual([])
  })

  test('any value given to accept()', async () => {
    const receiver = createReceiver({ secret, log, retry: { attempts: 1 } })
      .on('*', () => {})
      .on('malformed', () => {})
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
          checkAnswer(await receiver.accept({ authorization: secret, body, contentEncoding }))
          await nextTask()
        },
      ),
      { numRuns: inForm({ short: 200, full: 2000 }) },
    )
  })
})

describe('Input that breaks parsers', () => {
  const deep = 100_000
  const withLargeBodies = (): Receiver =>
    createReceiver({ secret, log, limits: { bodyBytes: 4_194_304 } }).on('*', () => {})
  const state = '{"vin":"A","state":"online"}'

  /** Bodies that a reader whose time grows with the square of the size would take minutes for, and others. */
  const bodies: readonly (readonly [what: string, body: string, status?: number])[] = [
    ...Object.entries(growing).map(([what, textOf]) => [what, textOf(60_000)] as const),
    ['lists nested deep', '['.repeat(deep) + ']'.repeat(deep), 400],
    ['an event nested deep', `{"source":"A","event":${'{"a":'.repeat(deep)}1${'}'.repeat(deep)}}`],
    ['alerts nested deep', `{"vin":"A","alerts":${'[['.repeat(deep)}${']]'.repeat(deep)}}`],
    ['a message after one nested deep', `${'{"a":'.repeat(deep)}1${'}'.repeat(deep)}${state}`],
    ['a huge string', `{"vin":"A","state":"${'x'.repeat(4_000_000)}"}`, 200],
    ['a huge key', `{"${'x'.repeat(4_000_000)}":1}`, 200],
    ['a huge number', `{"vin":"A","data":{"x":${'9'.repeat(1_000_000)}}}`, 200],
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
  ]

  test.each(bodies)('%s', async (_case, body, status) => {
    const receiver = withLargeBodies()
    const started = process.cpuUsage()
    for (const path of ['/', '/services/collector']) {
      const answer = await receiver.accept({ authorization: `Splunk ${secret}`, body, path })
      checkAnswer(answer)
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
