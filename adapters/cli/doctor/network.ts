import { lookup } from 'node:dns/promises'
import { once } from 'node:events'
import { connect as connectTcp, type Socket } from 'node:net'
import { connect as connectTls, type PeerCertificate, rootCertificates, type TLSSocket } from 'node:tls'
import { problemWithWebhookUrl } from '../../../src/service/client/webhook-url.ts'
import { codeOf } from '../exchange.ts'
import { type Circumstances, fail, type Finding, ok, okIf, skip, warn } from './check.ts'

/** How long a connection may take, in milliseconds. */
const connectMs = 5_000
/** A certificate that expires sooner should have been renewed. In days. */
const enoughDays = 14

const noUrl = 'the public address is not known: give --url, or set a webhook'

const portOf = ({ port, protocol }: URL): number => (port === '' ? (protocol === 'https:' ? 443 : 80) : Number(port))
const hostOf = ({ hostname }: URL): string => hostname.replace(/^\[|\]$/g, '')

/** Checks whether the internet can reach the address, as far as this machine can tell. */
export async function* checkNetwork({ url }: Circumstances): AsyncIterable<Finding> {
  if (url === undefined) {
    yield skip('network.address', noUrl)
    return
  }
  const problem = problemWithWebhookUrl(url.href)
  if (problem !== undefined)
    yield fail(
      'network.address',
      `The service cannot reach ${url.host}. ${problem}`,
      'Give the webhook a public address.',
    )
  else yield* checkName(url)
  yield okIf(url.protocol === 'https:', 'network.https', 'https').orFail(
    `${url.origin} is not encrypted: anyone on the way can read the secret.`,
    'Put a proxy with TLS in front of the receiver.',
  )
  try {
    const socket = connectTcp({ host: hostOf(url), port: portOf(url), timeout: connectMs })
    await connected(socket, 'connect')
    socket.destroy()
    yield ok('network.port', `port ${portOf(url)} is open, seen from here`)
  } catch (error) {
    yield fail(
      'network.port',
      `No connection to ${url.host}, port ${portOf(url)}: ${codeOf(error)}.`,
      'Is the proxy or the receiver running, and does the firewall allow this port?',
    )
  }
}

async function* checkName(url: URL): AsyncIterable<Finding> {
  try {
    const addressed = await lookup(hostOf(url), { all: true })
    const addresses = addressed.map(({ address }) => address)
    const hidden = addressed.filter(
      ({ address, family }) =>
        problemWithWebhookUrl(`https://${family === 6 ? `[${address}]` : address}`) !== undefined,
    )
    const found = `${hostOf(url)} is ${addresses.join(', ')}`
    yield okIf(hidden.length === 0, 'network.address', `${found}, seen from here`).orWarn(
      `${found} here, which the internet cannot reach. The name may have another address outside.`,
      'Look the name up from outside your network.',
    )
  } catch (error) {
    yield fail(
      'network.address',
      `The name ${hostOf(url)} does not resolve: ${codeOf(error)}.`,
      'Add the name to the DNS.',
    )
  }
}

/** Waits until a socket is connected. */
async function connected(socket: Socket, event: 'connect' | 'secureConnect'): Promise<void> {
  socket.once('timeout', () =>
    socket.destroy(Object.assign(new Error('The connection took too long.'), { code: 'ETIMEDOUT' })),
  )
  // An error after that changes nothing.
  socket.on('error', () => {})
  await once(socket, event)
}

/** What to do about each error of a certificate. */
const advice: Readonly<Record<string, string>> = {
  UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    'Send the whole chain: configure the file with the intermediate certificates (often fullchain.pem) instead of the certificate alone.',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    'Use a certificate of a public authority, and send the whole chain (often fullchain.pem).',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'Use a certificate of a public authority.',
  SELF_SIGNED_CERT_IN_CHAIN: 'Use a certificate of a public authority.',
  CERT_HAS_EXPIRED: 'Renew the certificate, and find out why it did not renew itself.',
  ERR_TLS_CERT_ALTNAME_INVALID: 'Use a certificate for this name.',
}

/** Checks the certificate as a sender would that trusts only public authorities and fetches no missing certificate. */
export async function* checkTls({ url, ca }: Circumstances): AsyncIterable<Finding> {
  if (url?.protocol !== 'https:') {
    yield skip('tls.chain', url === undefined ? noUrl : `${url.origin} has no TLS`)
    return
  }
  let socket: TLSSocket
  try {
    socket = await handshake(url, ca)
  } catch (error) {
    yield fail(
      'tls.chain',
      `The TLS handshake with ${url.host} failed: ${codeOf(error)}.`,
      'Does TLS end at this port?',
    )
    return
  }
  try {
    const { authorizationError } = socket
    const code = authorizationError instanceof Error ? codeOf(authorizationError) : String(authorizationError ?? '')
    const certificate = socket.getPeerCertificate()
    if (socket.authorized)
      yield ok('tls.chain', `whole, and trusted by the built-in authorities (issuer ${issuerOf(certificate)})`)
    else if (code === 'ERR_TLS_CERT_ALTNAME_INVALID')
      yield fail(
        'tls.name',
        `The certificate is for ${namesOf(certificate)}, not for ${hostOf(url)}.`,
        advice[code] ?? '',
      )
    else
      yield fail(
        'tls.chain',
        `The certificate is not trusted: ${code} (issuer ${issuerOf(certificate)}).`,
        advice[code] ?? 'Use a certificate of a public authority.',
      )
    const days = Math.floor((Date.parse(certificate.valid_to) - Date.now()) / 86_400_000)
    if (days >= enoughDays) yield ok('tls.days', `valid for ${days} days`)
    else if (days >= 0) yield warn('tls.days', `The certificate expires in ${days} days.`, 'Renew it.')
    const protocol = socket.getProtocol() ?? 'unknown'
    yield protocol === 'TLSv1.2' || protocol === 'TLSv1.3'
      ? ok('tls.version', protocol)
      : fail('tls.version', `The server speaks ${protocol}.`, 'Turn TLS 1.2 and 1.3 on.')
  } finally {
    socket.destroy()
  }
}

/** Connects with the built-in authorities only, without those of NODE_EXTRA_CA_CERTS. Accepts any certificate, to inspect it. */
async function handshake(url: URL, ca: string | undefined): Promise<TLSSocket> {
  const host = hostOf(url)
  const socket = connectTls({
    host,
    port: portOf(url),
    ...(isAddress(host) ? {} : { servername: host }),
    ca: trusted(ca),
    minVersion: 'TLSv1',
    rejectUnauthorized: false,
    timeout: connectMs,
  })
  await connected(socket, 'secureConnect')
  return socket
}

/** The authorities that the checks trust. */
export const trusted = (ca: string | undefined): string[] => [...rootCertificates, ...(ca === undefined ? [] : [ca])]

/** An address cannot be a server name. */
const isAddress = (host: string): boolean => /^[\d.]+$|:/.test(host)

const issuerOf = ({ issuer }: PeerCertificate): string => String(issuer?.O ?? issuer?.CN ?? 'unknown')
const namesOf = ({ subjectaltname, subject }: PeerCertificate): string =>
  subjectaltname?.replaceAll('DNS:', '') ?? String(subject?.CN ?? 'no name')
