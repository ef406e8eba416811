import { createReceiver, FleethookError, type ReceiverOptions } from 'fleethook'
import { describe, expect, test } from 'vitest'
import { withHint } from '../../src/base/errors.ts'

const plain = 'a-long-random-value'

/** Called as from JavaScript, where no compiler checks options. */
function errorOf(options: unknown): FleethookError {
  try {
    createReceiver(options as ReceiverOptions)
  } catch (error) {
    if (error instanceof FleethookError) return error
    throw error
  }
  return expect.fail('nothing was thrown')
}

describe('A secret that can never work is refused at construction, and not shown', () => {
  test.each([
    ['missing', {}, 'secret_missing', 'is missing'],
    ['undefined, as of an unset variable', { secret: undefined }, 'secret_missing', 'is missing'],
    ['null', { secret: null }, 'secret_missing', 'is missing'],
    ['empty', { secret: '' }, 'secret_missing', 'is empty'],
    ['an empty list', { secret: [] }, 'secret_missing', 'is an empty list'],
    ['a list with an empty text', { secret: [plain, ''] }, 'secret_missing', 'an empty entry'],
    ['a list with undefined', { secret: [plain, undefined] }, 'secret_missing', 'an empty entry'],
    ['with a trailing newline', { secret: `${plain}\n` }, 'option_invalid', 'ends with a line break'],
    ['with a trailing carriage return', { secret: `${plain}\r\n` }, 'option_invalid', 'ends with a line break'],
    ['with a trailing blank', { secret: `${plain} ` }, 'option_invalid', 'begins or ends with white space'],
    ['with a leading blank', { secret: ` ${plain}` }, 'option_invalid', 'begins or ends with white space'],
    ['blank', { secret: '   ' }, 'option_invalid', 'begins or ends with white space'],
    ['with a newline inside', { secret: `${plain}\n${plain}` }, 'option_invalid', 'has a character'],
    ['not ASCII', { secret: `${plain}é` }, 'option_invalid', 'has a character'],
    ['with a control character', { secret: `${plain}\0x` }, 'option_invalid', 'has a character'],
    ['true', { secret: true }, 'option_invalid', 'is of type boolean'],
    ['a number', { secret: 12345678 }, 'option_invalid', 'is of type number'],
    ['an object', { secret: { value: plain } }, 'option_invalid', 'is of type object'],
    ['a list in a list', { secret: [[plain]] }, 'option_invalid', 'is of type object'],
    ['too long', { secret: plain.repeat(100) }, 'option_invalid', 'longer than 1024 characters'],
    ['in a list and wrong', { secret: [plain, `${plain}\n`] }, 'option_invalid', 'ends with a line break'],
  ])('%s', (_case, options, code, words) => {
    const error = errorOf(options)
    expect(error).toMatchObject({ code, message: expect.stringContaining(words) })
    expect(error.message).toContain('Option `secret`')
    expect(error.hint).toMatch(/./)
    expect(JSON.stringify([error.message, error.hint, error.stack])).not.toMatch(/a-long-random-value|12345678/)
  })

  test.each([
    ['the secret itself', plain, 'a string'],
    ['nothing', undefined, 'undefined'],
    ['null', null, 'null'],
    ['a list', [plain], 'a list'],
    ['a function', () => plain, 'a function'],
  ])('createReceiver given %s instead of options', (_case, options, words) => {
    const error = errorOf(options)
    expect(error).toMatchObject({ code: 'option_invalid', message: expect.stringContaining(`was given ${words}.`) })
    expect(error.hint).toContain('createReceiver({ secret })')
    expect(error.message).not.toContain(plain)
  })
})

describe('A bad option names the option, what was given and what to do', () => {
  test.each([
    [{ format: 'json' }, '`format`', "'json'", "'auto' or 'service' or 'vehicle_maker' or 'event_collector'"],
    [{ decode: 'yes' }, '`decode`', "'yes'", 'true or false'],
    [{ fields: 'BatteryLevel' }, '`fields`', "'BatteryLevel'", 'field names to types'],
    [{ fields: { CabinNoise: 'decibel' } }, 'CabinNoise', 'decibel', 'Use one of'],
    [{ inbox: {} }, '`inbox`', 'an object', 'memoryInbox()'],
    [{ ack: 'soon' }, '`ack`', "'soon'", "'received' or 'stored' or 'handled'"],
    [{ ack: 'stored' }, '`ack`', "'stored'", 'durable inbox'],
    [{ concurrency: 0 }, '`concurrency`', '0', 'a whole number from 1 up'],
    [{ concurrency: '16' }, '`concurrency`', "'16'", 'a whole number'],
    [{ concurrency: 1.5 }, '`concurrency`', '1.5', 'a whole number'],
    [{ concurrency: Number.POSITIVE_INFINITY }, '`concurrency`', 'Infinity', 'a whole number'],
    [{ concurrency: Number.NaN }, '`concurrency`', 'NaN', 'a whole number'],
    [{ concurrency: 5n }, '`concurrency`', '5', 'a whole number'],
    [{ concurrency: null }, '`concurrency`', 'null', 'a whole number'],
    [{ retry: 5 }, '`retry`', '5', 'attempts, minMs, maxMs'],
    [{ retry: { attempts: 0 } }, '`retry.attempts`', '0', 'from 1 up'],
    [{ retry: { minMs: -1 } }, '`retry.minMs`', '-1', 'milliseconds'],
    [{ retry: { maxMs: 2 ** 31 } }, '`retry.maxMs`', '2147483648', '2147483647'],
    [{ retry: { min: 5 } }, '`retry.min`', 'no option', 'attempts, minMs, maxMs'],
    [{ timeoutMs: 0 }, '`timeoutMs`', '0', 'milliseconds from 1'],
    [{ timeoutMs: 2 ** 31 }, '`timeoutMs`', '2147483648', '2147483647'],
    [{ timeoutMs: '30s' }, '`timeoutMs`', "'30s'", 'milliseconds'],
    [{ limits: 1000 }, '`limits`', '1000', 'bodyBytes, pendingMessages, pendingBytes'],
    [{ limits: { bodyBytes: '1mb' } }, '`limits.bodyBytes`', "'1mb'", 'a whole number'],
    [{ limits: { bodybytes: 5 } }, '`limits.bodybytes`', 'no option', 'bodyBytes, pendingMessages, pendingBytes'],
    [{ overflow: 'drop' }, '`overflow`', 'no option', 'limits'],
    [{ log: () => {} }, '`log`', 'a function', 'debug, info, warn, error'],
    [{ log: { warn: () => {} } }, '`log`', 'an object', 'debug, info, warn, error'],
    [{ onDeadLetter: () => {} }, '`onDeadLetter`', 'no option', 'observe'],
    [{ basePath: 'telemetry' }, '`basePath`', "'telemetry'", 'begins with /'],
    [{ basePath: '/telemetry?x' }, '`basePath`', "'/telemetry?x'", 'begins with /'],
    [{ clock: {} }, '`clock`', 'an object', 'now, after'],
    [{ secrets: [plain] }, '`secrets`', 'no option', 'secret, format'],
    [{ timeout: 5 }, '`timeout`', 'no option', 'timeoutMs'],
    [{ toString: 5 }, '`toString`', 'no option', 'secret'],
    [JSON.parse('{"__proto__": 5}'), '`__proto__`', 'no option', 'secret'],
  ])('%o', (options: object, name, given, advice) => {
    const error = errorOf({ secret: plain, ...Object.fromEntries(Object.entries(options)) })
    expect(error.code).toMatch(/^(option_invalid|ack_unavailable)$/)
    for (const words of [name, given]) expect(error.message).toContain(words)
    expect(withHint(error)).toContain(advice)
    expect(withHint(error)).not.toContain(plain)
  })

  test('an option that is undefined counts as left out', () => {
    const names = ['format', 'decode', 'fields', 'inbox', 'ack', 'concurrency', 'retry', 'timeoutMs', 'limits']
    const options = Object.fromEntries([...names, 'log', 'observe', 'clock'].map((name) => [name, undefined]))
    expect(createReceiver({ ...options, secret: plain }).ack).toBe('received')
    expect(createReceiver({ secret: plain, retry: {}, limits: {} }).ack).toBe('received')
  })

  test('a part of `limits` or `retry` written as undefined has its default', async () => {
    const limits: object = { bodyBytes: undefined, pendingMessages: 5 }
    const { accept } = createReceiver({ secret: false, limits })
    expect(await accept({ authorization: undefined, body: '{}'.padEnd(1_048_576) })).toMatchObject({ status: 200 })
  })
})
