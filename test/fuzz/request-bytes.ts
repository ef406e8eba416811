import { chance, oneOf, type Random, whole } from '../../src/service/fleet/random.ts'
import { damagedBytes, mutatedBytes, mutatedText } from './mutation.ts'

const starts = [
  ...['POST / HTTP/1.1', 'POST / HTTP/1.0', 'POST /services/collector HTTP/1.1', 'POST * HTTP/1.1', 'POST / HTTP/9.9'],
  ...['GET /services/collector/health HTTP/1.1', 'HEAD / HTTP/1.1', 'OPTIONS / HTTP/1.1', 'CONNECT x:1 HTTP/1.1'],
  'TRACE / HTTP/1.1',
  ...['post / HTTP/1.1', 'POST http://other.test/ HTTP/1.1', 'POST //a/b HTTP/1.1', 'POST /%zz HTTP/1.1'],
  'POST /\\ HTTP/1.1',
  ...['POST  / HTTP/1.1', 'POST /', 'PRI * HTTP/2.0', '', '\x16\x03\x01\x02\0', `POST /${'a'.repeat(20_000)} HTTP/1.1`],
] as const

const lines = [
  ...['Host: other.test', 'Host:', 'Host: a b', 'host: x\x7f', 'Content-Length: 5', 'Content-Length: -1'],
  'Content-Length: +5',
  ...['Content-Length: 0x10', 'Content-Length: 99999999999999999999', 'Content-Length: 5, 5', 'Content-Length: 1e3'],
  'Content-Length:',
  ...['Transfer-Encoding: chunked', 'Transfer-Encoding: gzip, chunked', 'Transfer-Encoding: identity'],
  'Transfer-Encoding : chunked',
  ...['Transfer-Encoding: xchunked', 'Expect: 100-continue', 'Expect: 200-ok', 'Connection: close'],
  'Connection: upgrade',
  ...['Upgrade: websocket', 'Upgrade: h2c', 'Content-Encoding: gzip', 'Content-Encoding: br'],
  'Content-Encoding: gzip, gzip',
  ...['Authorization: wrong', 'Authorization:', ' folded: yes', '\tfolded', 'no colon', ': no name', 'bad name: x'],
  ...['x: \0', 'x: \x0b'],
  ...['Cookie: a=b', `x-long: ${'y'.repeat(20_000)}`, 'x: \xff\xfe', 'X-Forwarded-Proto: https', 'Trailer: x'],
  'TE: trailers',
] as const

const encoder = new TextEncoder()

/** Text as the bytes of a head: Latin-1. */
const latin1 = (text: string): Uint8Array<ArrayBuffer> => Uint8Array.from(text, (letter) => letter.charCodeAt(0) & 0xff)

/** A chunked body whose sizes are mostly right. */
function chunked(random: Random, body: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  const cut = whole(random, 0, body.length)
  const parts = [body.subarray(0, cut), body.subarray(cut)].filter(({ length }) => length > 0)
  const size = (length: number): string => {
    if (chance(random, 0.9)) return length.toString(16)
    return oneOf(random, ['-1', 'ffffffffffffffff', '0x5', ' 5', '5;ext=1', 'g', '', '00000000000000005'])
  }
  const end = oneOf(random, ['0\r\n\r\n', '0\r\n\r\n', '0\r\n\r\n', '0\r\nx: y\r\n\r\n', '0\n\n', '0\r\n', ''])
  return joined([...parts.flatMap((part) => [latin1(`${size(part.length)}\r\n`), part, latin1('\r\n')]), latin1(end)])
}

function joined(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0))
  let at = 0
  for (const part of parts) {
    all.set(part, at)
    at += part.length
  }
  return all
}

/** Bytes for a socket: mostly a request with one fault. */
export function requestBytes(random: Random, secret: string): Uint8Array<ArrayBuffer> {
  const body = chance(random, 0.1) ? encoder.encode('') : mutatedBytes(random, mutatedText(random)).subarray(0, 60_000)
  const inChunks = chance(random, 0.4)
  const framed = inChunks ? chunked(random, Uint8Array.from(body)) : body
  const head: string[] = [chance(random, 0.6) ? 'POST / HTTP/1.1' : oneOf(random, starts)]
  if (chance(random, 0.9)) head.push('Host: localhost')
  if (chance(random, 0.8)) head.push(`Authorization: ${secret}`)
  if (chance(random, 0.9)) head.push(inChunks ? 'Transfer-Encoding: chunked' : `Content-Length: ${body.length}`)
  for (let left = oneOf(random, [0, 0, 1, 2]); left > 0; left--)
    head.splice(whole(random, 1, head.length), 0, oneOf(random, lines))
  const end = chance(random, 0.95) ? '\r\n' : oneOf(random, ['\n', '\r', '\r\r\n', '\0'])
  const bytes = joined([latin1([...head, '', ''].join(end)), framed])
  if (chance(random, 0.75)) return bytes
  // In the head, where it hurts.
  const at = Math.min(bytes.length, 400)
  return joined([damagedBytes(random, bytes.slice(0, at)), bytes.subarray(at)])
}
