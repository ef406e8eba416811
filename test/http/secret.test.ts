import { createReceiver, type ReceiverOptions } from 'fleethook'
import { metricsText } from 'fleethook/metrics'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { codePoint } from '../code-points.ts'
import { remember } from './ways.ts'

const state = '{"vin":"A","state":"online"}'
const envelope = '{"event":{},"source":"A"}'

interface Checked {
  readonly status: number
  readonly error: string | undefined
  readonly hint: string
}

async function check(
  secret: ReceiverOptions['secret'],
  authorization: string | undefined,
  path: '/' | '/services/collector' = '/',
): Promise<Checked> {
  const answer = await createReceiver({ secret, log: remember() }).accept({
    path,
    authorization,
    body: path === '/' ? state : envelope,
  })
  const { error, hint = '' }: { error?: string; hint?: string } = JSON.parse(answer.body)
  return { status: answer.status, error, hint }
}

const basic = (credentials: string): string => `Basic ${btoa(credentials)}`

const plain = 'a-long-random-value'
const own = 'Bearer a-long-random-value'
const collectors = 'Splunk a-long-random-value'

describe('Compared with what the service sends', () => {
  test.each([
    // The value has no scheme.
    [plain, plain, '/', 200],
    [plain, `Splunk ${plain}`, '/', 200],
    [plain, `splunk ${plain}`, '/', 200],
    [plain, `SPLUNK   ${plain}`, '/', 200],
    [plain, `Splunk ${plain.toUpperCase()}`, '/', 403],
    [plain, plain.toUpperCase(), '/', 403],
    [plain, `Bearer ${plain}`, '/', 401],
    [plain, `Splunk Splunk ${plain}`, '/', 403],
    [plain, 'Splunk', '/', 403],
    [plain, 'Splunk ', '/', 403],
    [plain, basic(`x:${plain}`), '/', 401],
    [plain, plain, '/services/collector', 401],
    [plain, `sPLUNK ${plain}`, '/services/collector', 200],
    [plain, 'wrong', '/services/collector', 401],
    [plain, 'Splunk wrong', '/services/collector', 403],
    [plain, `Bearer ${plain}`, '/services/collector', 401],
    // The value has a scheme of its own.
    [own, own, '/', 200],
    [own, own, '/services/collector', 200],
    [own, 'Bearer wrong', '/', 403],
    [own, plain, '/', 401],
    [own, `Splunk ${plain}`, '/', 401],
    [own, `Splunk ${own}`, '/', 401],
    [own, basic(`x:${plain}`), '/services/collector', 401],
    // The value has the collector's scheme.
    [collectors, collectors, '/', 200],
    [collectors, `splunk ${plain}`, '/services/collector', 200],
    [collectors, plain, '/', 401],
    [collectors, basic(`x:${plain}`), '/services/collector', 200],
    // HTTP Basic with the secret as password, on the collector's paths only.
    [plain, basic(`x:${plain}`), '/services/collector', 200],
    [plain, basic(`:${plain}`), '/services/collector', 200],
    [plain, basic(`x:${plain}`).replace('Basic', 'bASIC'), '/services/collector', 200],
    [plain, basic(`${plain}:x`), '/services/collector', 403],
    [plain, basic(plain), '/services/collector', 403],
    [plain, basic(`x:y:${plain}`), '/services/collector', 403],
    [plain, basic(`x:${plain}\0`), '/services/collector', 403],
    [plain, 'Basic %%%', '/services/collector', 403],
    ['with:colon', basic('x:with:colon'), '/services/collector', 200],
    ['Basic dXNlcjpwYXNz', 'Basic dXNlcjpwYXNz', '/', 200],
    ['Basic dXNlcjpwYXNz', 'Basic dXNlcjpwYXNz', '/services/collector', 200],
    // A value with a blank in it.
    ['a pass phrase', 'a pass phrase', '/', 200],
    ['a pass phrase', 'a pass', '/', 403],
  ] as const)('secret %j, header %j at %s: %i', async (secret, authorization, path, status) => {
    expect(await check(secret, authorization, path)).toMatchObject({ status })
  })

  test('a secret of 1,024 characters is compared whole, a longer one is refused at construction', async () => {
    const longest = 'x'.repeat(1024)
    expect(await check(longest, longest)).toMatchObject({ status: 200 })
    for (const other of [longest.slice(1), `${longest}x`, `${longest}\0`, `${longest.slice(1)}y`]) {
      expect(await check(longest, other)).toMatchObject({ status: 403 })
    }
    expect(() => createReceiver({ secret: `${longest}x` })).toThrow('1024')
  })

  test('nothing but the secret is accepted', async () => {
    const { accept } = createReceiver({ secret: plain })
    const part = fc.integer({ min: 0, max: plain.length })
    const altered = fc.oneof(
      part.map((end) => plain.slice(0, end)),
      part.map((start) => plain.slice(start)),
      fc.string({ unit: codePoint, minLength: 1 }).map((text) => plain + text),
      fc.string({ unit: codePoint, minLength: 1 }).map((text) => text + plain),
      fc.integer({ min: 1, max: 2000 }).map((count) => plain + '\0'.repeat(count)),
      fc.integer({ min: 0, max: 2000 }).map((count) => ' '.repeat(count)),
      fc
        .tuple(part, fc.string({ unit: codePoint, maxLength: 3 }))
        .map(([at, text]) => plain.slice(0, at) + text + plain.slice(at + 1)),
      fc.string({ unit: codePoint, maxLength: 3000 }),
      fc.constantFrom('\ud800', `${plain}\ud800`, `${plain}\u00e9`, `ａ${plain.slice(1)}`),
    )
    await fc.assert(
      fc.asyncProperty(altered, fc.constantFrom('', 'Splunk ', 'splunk '), async (candidate, scheme) => {
        fc.pre(
          candidate !== plain && candidate.trimStart() !== plain && !/^splunk +a-long-random-value$/i.test(candidate),
        )
        const answer = await accept({ authorization: scheme + candidate, body: state })
        expect([401, 403]).toContain(answer.status)
      }),
      { numRuns: 2000 },
    )
  })

  test('any visible ASCII value is accepted as its own secret, and behind the scheme when it has none', async () => {
    const visible = fc.string({
      unit: fc.integer({ min: 0x21, max: 0x7e }).map((code) => String.fromCharCode(code)),
      minLength: 1,
      maxLength: 200,
    })
    await fc.assert(
      fc.asyncProperty(visible, async (secret) => {
        expect(await check(secret, secret)).toMatchObject({ status: 200 })
        expect(await check(secret, `Splunk ${secret}`, '/services/collector')).toMatchObject({ status: 200 })
        expect(await check(secret, basic(`user:${secret}`), '/services/collector')).toMatchObject({ status: 200 })
      }),
    )
  })
})

describe('A list of secrets (rotation)', () => {
  test('is counted by place, so that it shows when nobody uses the old one any more', async () => {
    const receivers = [[plain, own], () => [plain, own]].map((secret) => createReceiver({ secret, log: remember() }))
    for (const receiver of receivers) {
      expect(receiver.stats().secrets).toEqual(receiver === receivers[0] ? [0, 0] : [])
      for (const authorization of [own, plain, own, `Splunk ${plain}`, 'wrong', undefined, own]) {
        await receiver.accept({ authorization, body: state })
      }
      expect(receiver.stats().secrets).toEqual([2, 3])
      expect(metricsText(receiver)).toContain('fleethook_requests_authorized_total{fleethook_secret_index="1"} 3\n')
    }
    expect(createReceiver({ secret: plain }).stats().secrets).toEqual([0])
    expect(createReceiver({ secret: false }).stats().secrets).toEqual([])
  })

  test.each([
    ['old', 200],
    ['Splunk old', 200],
    ['Splunk new', 200],
    ['Bearer other', 200],
    ['bearer other', 403],
    ['older', 403],
    ['old, new', 401],
  ] as const)('%s: %i', async (authorization, status) => {
    expect(await check(['old', 'new', 'Bearer other'], authorization)).toMatchObject({ status })
  })
})

describe('A function of `env`', () => {
  const post = (): Request =>
    new Request('http://receiver.test/', { method: 'POST', headers: { authorization: plain }, body: state })

  test('is called for every request with the env of the runtime, and may be asynchronous', async () => {
    const seen: unknown[] = []
    const receiver = createReceiver<{ readonly KEY: string }>({
      secret: async (env) => {
        seen.push(env)
        return env.KEY
      },
    })
    expect((await receiver.fetch(post(), { KEY: plain })).status).toBe(200)
    expect((await receiver.fetch(post(), { KEY: 'other' })).status).toBe(403)
    expect(await receiver.accept({ authorization: plain, body: state, env: { KEY: plain } })).toMatchObject({
      status: 200,
    })
    expect(seen).toEqual([{ KEY: plain }, { KEY: 'other' }, { KEY: plain }])
  })

  test('may return a list, and another value each time', async () => {
    let secrets: string | readonly string[] = ['old', plain]
    const { fetch } = createReceiver({ secret: () => secrets })
    expect((await fetch(post())).status).toBe(200)
    secrets = 'new'
    expect((await fetch(post())).status).toBe(403)
    secrets = plain
    expect((await fetch(post())).status).toBe(200)
  })

  test.each([
    ['undefined', () => undefined],
    ['null', async () => null],
    // `secret: false` accepts every request, and must be written out.
    ['false', () => false as never],
    ['an empty text', () => ''],
    ['an empty list', () => []],
    ['a list with an empty text', () => [plain, '']],
    ['a value with a line break', () => `${plain}\n`],
    ['nothing, by throwing', () => expect.fail(`the secret is ${plain}`)],
    ['nothing, by rejecting', () => Promise.reject(new TypeError(plain))],
    ['nothing, by throwing no error', () => Promise.reject<string>(plain)],
  ])('that yields %s: every request is refused with 503, and one loud log until it recovers', async (_case, secret) => {
    const log = remember()
    let broken = true
    const receiver = createReceiver({ secret: () => (broken ? secret() : plain), log })
    for (let turn = 0; turn < 3; turn++) {
      const response = await receiver.fetch(post())
      expect(response.status).toBe(503)
      expect(response.headers.get('retry-after')).toMatch(/^\d+$/)
      expect(await response.json()).toMatchObject({ code: 9, error: 'secret_unavailable' })
    }
    expect(log.lines).toHaveLength(1)
    expect(log.lines[0]).toMatch(/^error every message is refused: .*`secret`/)
    expect(log.lines.join('')).not.toContain(plain)
    broken = false
    expect((await receiver.fetch(post())).status).toBe(200)
    broken = true
    expect((await receiver.fetch(post())).status).toBe(503)
    expect(log.lines).toHaveLength(2)
  })
})

test('`secret: false` accepts everything', async () => {
  for (const authorization of [undefined, '', 'anything', 'Splunk anything']) {
    expect(await check(false, authorization)).toMatchObject({ status: 200 })
    expect(await check(false, authorization, '/services/collector')).toMatchObject({ status: 200 })
  }
})

describe('A refusal says what to do, and never shows a secret', () => {
  test.each([
    ['a scheme where the secret has none', plain, `Bearer ${plain}`, '/', 'does not. Set `auth`'],
    ['no scheme where the secret has one', own, plain, '/', 'begins with a scheme word, but the header does not'],
    ['another scheme', own, `Token ${plain}`, '/', 'different scheme words'],
    ['a bare secret on a collector path', plain, plain, '/services/collector', '"Authorization: Splunk <secret>"'],
    ['the secret in quotes', plain, `"${plain}"`, '/', 'but in quotes'],
    ['two headers', plain, `${plain}, ${plain}`, '/', 'two Authorization headers'],
    ['two headers without a space', plain, `${plain},${plain}`, '/', 'two Authorization headers'],
    ['two headers with schemes', plain, `Splunk ${plain}, Basic eDp5`, '/', 'two Authorization headers'],
    ['another value', plain, 'other', '/', 'to the same value'],
  ] as const)('%s', async (_case, secret, authorization, path, words) => {
    const { status, hint } = await check(secret, authorization, path)
    expect([401, 403]).toContain(status)
    expect(hint).toContain(words)
    expect(hint).not.toContain(plain)
  })
})

describe('A secret that is right behind another scheme word is in the log, once, and not in the answer', () => {
  const line = (word: string): string =>
    `error messages are refused although their secret is right: the header has ${word} as its scheme word. Set \`secret\` to the whole value of \`auth\`.`

  test.each([
    [plain, `Bearer ${plain}`, 'Bearer'],
    [plain, `bearer   ${plain}`, 'bearer'],
    [own, `Token ${plain}`, 'Token'],
    [own, plain, 'no'],
    [['another-value', own], `Token ${plain}`, 'Token'],
    [() => plain, `Bearer ${plain}`, 'Bearer'],
    [plain, `${'x'.repeat(40)} ${plain}`, 'something else'],
    [plain, `an-0ld-secret ${plain}`, 'something else'],
    [['short', plain], `short ${plain}`, 'something else'],
  ])('secret %o, header %o', async (secret, authorization, where) => {
    const log = remember()
    const receiver = createReceiver({ secret, log })
    const near = await receiver.accept({ authorization, body: state })
    await receiver.accept({ authorization, body: state })
    const told = log.lines.filter((one) => one.includes('although their secret is right'))
    expect(told).toEqual([line(where)])
    expect(log.lines.join()).not.toContain(plain)
    const far = await receiver.accept({
      authorization: authorization.replace(plain, 'a-long-random-valuE'),
      body: state,
    })
    expect(far).toEqual(near)
    expect(near.status).toBe(401)
  })

  test.each([
    `Bearer ${plain}x`,
    `Bearer x${plain}`,
    'Bearer ',
    `${plain} Bearer`,
    `${plain}, ${plain}`,
    `other, ${plain}`,
  ])('%o is not such a one', async (authorization) => {
    const log = remember()
    await createReceiver({ secret: plain, log }).accept({ authorization, body: state })
    expect(log.lines.join()).not.toContain('although')
    expect(log.lines.join()).not.toContain(plain)
  })
})
