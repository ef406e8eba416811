import { mkdirSync, renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { connect, type TLSSocket } from 'node:tls'
import { createReceiver } from 'fleethook'
import { type Server, serve, type TlsOptions } from 'fleethook/node'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { createAuthority } from '../kafka/certificates.ts'
import { secret } from '../runtimes/targets.ts'
import { newFolder } from '../folder.ts'

const quiet = { port: 0, hostname: '127.0.0.1', signals: false, announce: false } as const
const authority = await createAuthority()

interface Pair {
  readonly cert: string
  readonly key: string
}

async function pair(name: string, days?: number): Promise<Pair> {
  const { chain, key } = await authority.issue(name, days)
  return { cert: chain, key }
}

function folder(): string {
  return newFolder('certificate')
}

/** What the log says. */
function watchLog(): readonly string[] {
  const lines: string[] = []
  for (const level of ['info', 'warn', 'error'] as const) {
    const spy = vi.spyOn(console, level).mockImplementation((line) => void lines.push(`${level} ${String(line)}`))
    onTestFinished(() => spy.mockRestore())
  }
  return lines
}

async function served(tls: TlsOptions): Promise<Server> {
  const server = await serve(createReceiver({ secret }), { ...quiet, tls })
  onTestFinished(async () => void (await server.close()))
  return server
}

async function opened(port: number): Promise<TLSSocket> {
  const socket = connect({ port, host: '127.0.0.1', ca: authority.root, checkServerIdentity: () => undefined })
  await new Promise<void>((resolve, reject) => socket.once('secureConnect', resolve).once('error', reject))
  return socket
}

/** The name in the certificate that a new connection gets. */
async function nameAt(port: number): Promise<string> {
  const socket = await opened(port)
  const { CN: name } = socket.getPeerCertificate().subject
  socket.destroy()
  return String(name)
}

function write(at: string, { cert, key }: Pair): TlsOptions {
  writeFileSync(join(at, 'cert.pem'), cert)
  writeFileSync(join(at, 'key.pem'), key)
  return { certFile: join(at, 'cert.pem'), keyFile: join(at, 'key.pem') }
}

describe('a certificate that is renewed on disk is served by itself', () => {
  test('when its files are written again, and connections that are open go on', async () => {
    const log = watchLog()
    const at = folder()
    const { port } = await served(write(at, await pair('one.example.com')))
    const before = await opened(port)
    expect(await nameAt(port)).toBe('one.example.com')
    write(at, await pair('two.example.com'))
    await expect.poll(() => nameAt(port)).toBe('two.example.com')
    expect(log.join('\n')).toContain('info fleethook: serving the renewed certificate')

    const body = '{"vin":"A","state":"online"}'
    const answer = new Promise<string>((resolve) => before.once('data', (chunk) => resolve(String(chunk))))
    before.write(
      `POST / HTTP/1.1\r\nhost: localhost\r\nauthorization: ${secret}\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    )
    expect(await answer).toContain('HTTP/1.1 200')
    before.destroy()
  })

  test('when files are renamed into place, one after the other', async () => {
    watchLog()
    const at = folder()
    const { port } = await served(write(at, await pair('one.example.com')))
    const next = join(at, 'next')
    mkdirSync(next)
    write(next, await pair('two.example.com'))
    renameSync(join(next, 'cert.pem'), join(at, 'cert.pem'))
    expect(await nameAt(port)).toBe('one.example.com')
    renameSync(join(next, 'key.pem'), join(at, 'key.pem'))
    await expect.poll(() => nameAt(port)).toBe('two.example.com')
  })

  test('when a link to their folder is swapped, as in a mounted secret', async () => {
    watchLog()
    const at = folder()
    for (const name of ['one', 'two']) {
      mkdirSync(join(at, name))
      write(join(at, name), await pair(`${name}.example.com`))
    }
    symlinkSync('one', join(at, 'data'))
    for (const file of ['cert.pem', 'key.pem']) symlinkSync(`data/${file}`, join(at, file))
    const { port } = await served({ certFile: join(at, 'cert.pem'), keyFile: join(at, 'key.pem') })
    expect(await nameAt(port)).toBe('one.example.com')
    symlinkSync('two', join(at, 'data-next'))
    renameSync(join(at, 'data-next'), join(at, 'data'))
    await expect.poll(() => nameAt(port)).toBe('two.example.com')
  })
})

test('a pair that does not match, or is half written or gone, is not served: the log says so, and the old one goes on', async () => {
  const log = watchLog()
  const at = folder()
  const good = await pair('one.example.com')
  const { port } = await served(write(at, good))
  const other = await pair('two.example.com')
  write(at, { cert: other.cert, key: good.key })
  await expect.poll(() => log.join('\n')).toContain('do not belong together')
  expect(await nameAt(port)).toBe('one.example.com')
  write(at, { cert: other.cert.slice(0, 300), key: other.key })
  await new Promise((resolve) => setTimeout(resolve, 2_500))
  expect(await nameAt(port)).toBe('one.example.com')
  write(at, other)
  await expect.poll(() => nameAt(port)).toBe('two.example.com')
  expect(log.join('\n')).not.toContain(good.key.slice(40, 80))
})

describe('`renewCertificate`', () => {
  test('serves a pair of texts, or what the files hold now', async () => {
    watchLog()
    const at = folder()
    const server = await served(write(at, await pair('one.example.com')))
    write(at, await pair('two.example.com'))
    server.renewCertificate()
    expect(await nameAt(server.port)).toBe('two.example.com')
    server.renewCertificate(await pair('three.example.com'))
    expect(await nameAt(server.port)).toBe('three.example.com')
  })

  test('throws for a pair that cannot be served, and keeps the old one', async () => {
    watchLog()
    const server = await served(await pair('one.example.com'))
    const { cert } = await pair('two.example.com')
    const { key } = await pair('three.example.com')
    expect(() => server.renewCertificate({ cert, key })).toThrow('do not belong together')
    expect(() => server.renewCertificate({ cert: 'x', key: 'y' })).toThrow('no whole PEM file')
    expect(() => server.renewCertificate()).toThrow('was given no certificate')
    expect(await nameAt(server.port)).toBe('one.example.com')
    const plain = await serve(createReceiver({ secret }), quiet)
    expect(() => plain.renewCertificate({ cert, key })).toThrow('no option `tls`')
    await plain.close()
  })
})

test.each([
  [10, 'warn fleethook: the certificate expires at'],
  [-1, 'error fleethook: the certificate expired at'],
  [60, undefined],
])('a certificate that has %d days left is in the log at the start: %s', async (days, line) => {
  const log = watchLog()
  await served(await pair('one.example.com', days))
  expect(log.find((one) => one.includes('the certificate'))?.slice(0, line?.length)).toBe(line)
})

test.each([
  [
    { certFile: '/nowhere/cert.pem', keyFile: '/nowhere/key.pem' },
    /`tls.certFile` of serve could not be read: \/nowhere\/cert.pem, ENOENT/,
  ],
  [{ certFile: '/nowhere/cert.pem' }, /`tls` of serve has certFile/],
  [{ cert: 'x', keyFile: '/nowhere' }, /`tls` of serve has cert and keyFile/],
  [{}, /`tls` of serve has nothing/],
  [{ certFile: '-----BEGIN CERTIFICATE-----', keyFile: 'x' }, /`tls.certFile` of serve must be the path of a PEM file/],
])('serve with the option tls %j rejects and says what is wrong', async (tls, complaint) => {
  await expect(serve(createReceiver({ secret }), { ...quiet, tls: tls as TlsOptions })).rejects.toThrow(complaint)
})
