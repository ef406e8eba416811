import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { problemWithWebhookUrl, isLoopback } from '../../src/service/client/webhook-url.ts'

const refused = (host: string): boolean => problemWithWebhookUrl(`https://${host}/telemetry`) !== undefined

const octet = fc.integer({ min: 0, max: 255 })

/** Addresses in ranges that the internet does not route. */
const privateV4 = fc.oneof(
  fc.tuple(fc.constantFrom(0, 10, 127, 224, 240, 255), octet, octet, octet),
  fc.tuple(fc.constant(172), fc.integer({ min: 16, max: 31 }), octet, octet),
  fc.tuple(fc.constant(192), fc.constant(168), octet, octet),
  fc.tuple(fc.constant(169), fc.constant(254), octet, octet),
  fc.tuple(fc.constant(100), fc.integer({ min: 64, max: 127 }), octet, octet),
)

const publicV4 = fc
  .tuple(fc.constantFrom(1, 8, 9, 23, 45, 93, 151, 185, 210), octet, octet, octet)
  .map(([a, b, c, d]): [number, number, number, number] => [a, b, c, d])

type Address = readonly [number, number, number, number]
const asNumber = ([a, b, c, d]: Address): number => ((a << 24) | (b << 16) | (c << 8) | d) >>> 0
const hextets = ([a, b, c, d]: Address): string => `${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`

/** The ways in which the URL standard lets an IPv4 address be written. */
const spellings: readonly ((address: Address) => string)[] = [
  (address) => address.join('.'),
  (address) => `${address.join('.')}.`,
  (address) => `user:password@${address.join('.')}:8443`,
  (address) => String(asNumber(address)),
  (address) => `0x${asNumber(address).toString(16)}`,
  (address) => `0${asNumber(address).toString(8)}`,
  (address) => address.map((part) => `0x${part.toString(16)}`).join('.'),
  (address) => address.map((part) => `0${part.toString(8)}`).join('.'),
  ([a, b, c, d]) => `${a}.${b}.${(c << 8) | d}`,
  ([a, b, c, d]) => `${a}.0x${((b << 16) | (c << 8) | d).toString(16)}`,
  (address) => address.join('。'),
  (address) => address.join('.').replace(/\d/g, (digit) => String.fromCharCode(0xff10 + Number(digit))),
  (address) => address.join('.').replace(/\d/g, (digit) => `%3${digit}`),
  (address) => `[::ffff:${address.join('.')}]`,
  (address) => `[::FFFF:${hextets(address)}]`,
  (address) => `[0:0:0:0:0:ffff:${hextets(address)}]`,
  (address) => `[::ffff:0:${hextets(address)}]`,
  (address) => `[64:ff9b::${address.join('.')}]`,
  (address) => `[2002:${hextets(address)}::1]`,
]

describe('a URL that the internet cannot reach is refused', () => {
  test.each([
    ...['localhost', 'LOCALHOST', 'localhost.', 'api.localhost', 'mac.local', 'Mac.Local.', 'a.b.local'],
    ...['db.internal', 'nas.home.arpa', 'printer.lan', 'server.localdomain', 'receiver', '0', '127.1', '[::]'],
    ...['[::1]', '[0:0:0:0:0:0:0:1]', '[fe80::1]', '[febf::1]', '[fc00::1]', '[fd12:3456:789a::1]', '[fec0::1]'],
    ...['[ff02::1]', '[2001:db8::1]', '[3fff::1]', '[100::1]', '[64:ff9b:1::1]', '[2001::1]', '[::7f00:1]'],
    ...['[5f00::1]'],
  ])('%s', (host) => {
    expect(refused(host)).toBe(true)
  })

  test('an address with a zone is refused', () => {
    expect(refused('[fe80::1%25eth0]')).toBe(true)
    expect(refused('[fe80::1%eth0]')).toBe(true)
  })

  test.each([
    ...['', 'example.com/x', '/telemetry', 'ftp://example.com/', 'ws://example.com', 'file:///etc/hosts'],
    ...['javascript:1'],
  ])('not a web URL: %j', (url) => {
    expect(problemWithWebhookUrl(url)).toBeDefined()
  })

  test('any private IPv4 address, however it is spelled', () => {
    fc.assert(
      fc.property(privateV4, fc.constantFrom(...spellings), (address, spelled) => refused(spelled(address))),
      { numRuns: 2_000 },
    )
  })

  test('any unique local, link-local or multicast IPv6 address', () => {
    const first = fc.oneof(
      fc.integer({ min: 0xfc00, max: 0xfdff }),
      fc.integer({ min: 0xfe80, max: 0xfeff }),
      fc.integer({ min: 0xff00, max: 0xffff }),
    )
    const rest = fc.array(fc.integer({ min: 0, max: 0xffff }), { minLength: 7, maxLength: 7 })
    fc.assert(
      fc.property(first, rest, (head, tail) =>
        refused(`[${[head, ...tail].map((part) => part.toString(16)).join(':')}]`),
      ),
    )
  })
})

describe('a URL that the internet can reach is not refused', () => {
  test.each([
    ...['example.com', 'EXAMPLE.com.', 'localhost.example.com', 'local.example', 'my-local.example'],
    ...['notlocalhost.example', '10.example.com', 'bücher.example', '8.8.8.8', '172.15.0.1', '172.32.0.1'],
    ...['100.128.0.1', '[2606:4700::1111]', '[2a00:1450:4001:82b::200e]', '[::ffff:8.8.8.8]'],
  ])('%s', (host) => {
    expect(refused(host)).toBe(false)
    expect(refused(`user:password@${host}:8443`)).toBe(false)
  })

  test('a public IPv4 address, however it is spelled', () => {
    fc.assert(
      fc.property(publicV4, fc.constantFrom(...spellings), (address, spelled) => !refused(spelled(address))),
      { numRuns: 2_000 },
    )
  })
})

test('any text gets an answer', () => {
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.webUrl()), (text) =>
      ['string', 'undefined'].includes(typeof problemWithWebhookUrl(text)),
    ),
  )
})

test('the reason repeats at most the host of the URL', () => {
  for (const url of ['https://user:hunter2@localhost/?key=hunter2', 'ftp://user:hunter2@x/', 'hunter2']) {
    expect(problemWithWebhookUrl(url)).not.toContain('hunter2')
  }
})

test('isLoopback knows this machine from others', () => {
  for (const host of ['localhost', 'a.localhost', '127.0.0.1', '127.9.9.9', '[::1]'])
    expect(isLoopback(host)).toBe(true)
  for (const host of ['example.com', '10.0.0.1', '[::2]', 'localhost.example']) expect(isLoopback(host)).toBe(false)
})
