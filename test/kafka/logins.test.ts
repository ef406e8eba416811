import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { KafkaInboxOptions } from '../../adapters/inbox/kafka.ts'
import { cluster } from '../../scripts/kafka.ts'
import { type Authority, createAuthority } from './certificates.ts'
import { inForm } from '../form.ts'
import { secret, type ServerRuntime } from '../runtimes/targets.ts'
import { type Brokers, startBrokers } from './brokers.ts'
import { createFleet } from './fleet.ts'
import { count, numbersOf, receiversOn, type Running } from './receivers.ts'

let authority: Authority
let client: { readonly key: string; readonly cert: string }
let brokers: Brokers
/** The longest duration of a login, in milliseconds. After it, the broker closes the connection of a client that did not log in again. */
const loginMs = 2_000

beforeAll(async () => {
  authority = await createAuthority()
  const { key, chain } = await authority.issue('127.0.0.1')
  const own = await authority.issue('fleet')
  client = { key: own.key, cert: own.chain }
  const properties = { 'connections.max.reauth.ms': loginMs }
  brokers = await startBrokers({ tls: { chain, key, authority: authority.root }, properties })
})
afterAll(() => brokers?.[Symbol.asyncDispose]())

const { run, newTopic } = receiversOn(() => brokers, 3)
const create = async (way: Partial<KafkaInboxOptions>): Promise<Running> =>
  run({ topic: await newTopic(), brokers: brokers.addressesWithTlsAndLogin, confirmMs: 5_000, ...way })

async function handlesOne(way: Partial<KafkaInboxOptions>): Promise<void> {
  await using one = await create(way)
  expect(await one.post('V1', 1)).toBe(200)
  await expect.poll(() => numbersOf(one, 'V1')).toEqual([1])
}

/** An unsigned token. The brokers of the tests accept it until it expires. */
function token(name = 'fleet', lastsMs = 60_000): string {
  const encode = (part: object): string => Buffer.from(JSON.stringify(part)).toString('base64url')
  const now = Date.now() / 1_000
  return `${encode({ alg: 'none' })}.${encode({ sub: name, iat: now - 60, exp: now + lastsMs / 1_000 })}.`
}

const { user: username, password } = cluster
const logins = {
  PLAIN: { mechanism: 'PLAIN', username, password },
  'SCRAM-SHA-512': { mechanism: 'SCRAM-SHA-512', username, password },
  OAUTHBEARER: { mechanism: 'OAUTHBEARER', token: () => Promise.resolve(token()) },
} as const
type Mechanism = keyof typeof logins

describe('TLS', () => {
  test('connects with a private authority and a client certificate', async () => {
    await handlesOne({ brokers: brokers.addressesWithTls, tls: { ca: authority.root, ...client } })
  })

  test.each([
    ['an unknown authority', () => ({}), /^The certificate of the brokers is not trusted: [A-Z_]+\.$/],
    [
      'a certificate for another name',
      () => ({ ca: authority.root, servername: 'b1.example' }),
      /^The certificate of the brokers is not trusted: ERR_TLS_CERT_ALTNAME_INVALID\.$/,
    ],
  ] as const)('%s is one clear sentence', async (_, tls, message) => {
    await expect(create({ tls: tls(), sasl: logins.PLAIN })).rejects.toMatchObject({
      code: 'inbox_unavailable',
      message: expect.stringMatching(message),
    })
  })

  test('a missing client certificate: the brokers close the connection without a reason, and the error names `tls`', async () => {
    const way = { brokers: brokers.addressesWithTls, tls: { ca: authority.root } }
    await expect(create(way)).rejects.toMatchObject({
      code: 'inbox_unavailable',
      message: expect.stringMatching(/^The brokers .* did not finish the TLS handshake\.$/),
      hint: expect.stringContaining('`tls: { cert, key }`'),
    })
  })

  test('no TLS to brokers that expect TLS is one clear sentence', async () => {
    await expect(create({ brokers: brokers.addressesWithTls })).rejects.toMatchObject({
      code: 'inbox_unavailable',
      message: expect.stringMatching(/^The brokers .* expect TLS\.$/),
    })
  })
})

describe('logins', () => {
  test.each<Mechanism>(['PLAIN', 'SCRAM-SHA-512', 'OAUTHBEARER'])('%s with TLS', async (mechanism) => {
    await handlesOne({ tls: { ca: authority.root }, sasl: logins[mechanism] })
  })

  test('OAUTHBEARER without TLS', async () => {
    await handlesOne({ brokers: brokers.addressesWithPassword, sasl: logins.OAUTHBEARER })
  })

  test.each([
    ['a wrong password, PLAIN', { ...logins.PLAIN, password: 'wrong' }],
    ['a wrong password, SCRAM-SHA-512', { ...logins['SCRAM-SHA-512'], password: 'wrong' }],
    ['a token that has expired', { mechanism: 'OAUTHBEARER', token: () => token('fleet', -50_000) }],
    ['a text that is no token', { mechanism: 'OAUTHBEARER', token: 'nonsense' }],
  ] as const)('%s is one clear sentence', async (_, sasl) => {
    await expect(create({ tls: { ca: authority.root }, sasl })).rejects.toMatchObject({
      code: 'inbox_unavailable',
      message: expect.stringMatching(/^The brokers .* refused the (?:user or the password|token)\.$/),
    })
  })

  test.each(inForm<readonly Mechanism[]>({ full: ['OAUTHBEARER'], long: ['PLAIN', 'SCRAM-SHA-512', 'OAUTHBEARER'] }))(
    '%s: logs in again before the login ends, and refuses nothing',
    async (mechanism) => {
      let asked = 0
      const counted = (text: string) => () => {
        asked += 1
        return text
      }
      const sasl =
        mechanism === 'OAUTHBEARER'
          ? { mechanism, token: () => counted(token())() }
          : { mechanism, username, password: counted(password) }
      await using one = await create({ tls: { ca: authority.root }, sasl })
      const askedAtStart = asked
      const numbers = count(40)
      for (const number of numbers) {
        expect(await one.post('V1', number)).toBe(200)
        await new Promise((resolve) => setTimeout(resolve, (loginMs * 3) / numbers.length))
      }
      await expect.poll(() => numbersOf(one, 'V1')).toEqual(numbers)
      expect(asked).toBeGreaterThan(askedAtStart)
    },
  )

  test.each<ServerRuntime>(['bun', 'deno'])('%s: SCRAM-SHA-512 and OAUTHBEARER with TLS', async (runtime) => {
    await using fleet = await createFleet({ brokers, runtime, partitions: 3 })
    const tls = { ca: authority.root }
    const start = (sasl: KafkaInboxOptions['sasl'], role: 'receive' | 'handle'): Promise<unknown> =>
      fleet.start(role, {
        inbox: { brokers: brokers.addressesWithTlsAndLogin, tls, ...(sasl === undefined ? {} : { sasl }) },
      })
    await Promise.all([
      start(logins['SCRAM-SHA-512'], 'receive'),
      start({ mechanism: 'OAUTHBEARER', token: token() }, 'handle'),
    ])
    const body = JSON.stringify({ vin: 'V1', createdAt: '2026-01-01T00:00:00Z', data: { Odometer: 1 } })
    const { status } = await fetch(fleet.url, { method: 'POST', headers: { authorization: secret }, body })
    expect(status).toBe(200)
    await expect.poll(() => fleet.journal().runs.map(({ number }) => number)).toEqual([1])
  })
})
