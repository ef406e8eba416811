import 'reflect-metadata' // oxlint-disable-line no-unassigned-import -- the library asks for it
import {
  BasicConstraintsExtension,
  KeyUsageFlags,
  KeyUsagesExtension,
  SubjectAlternativeNameExtension,
  type X509Certificate,
  X509CertificateGenerator,
} from '@peculiar/x509'

const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' }
const dayMs = 86_400_000

/** An authority that nobody else knows, with an intermediate authority below it. */
export interface Authority {
  readonly root: string
  /** Makes a certificate for a name. `chain` has the intermediate certificate too. */
  issue(name: string, days?: number): Promise<{ readonly key: string; readonly leaf: string; readonly chain: string }>
}

/** Makes an authority of its own for a test. */
export async function createAuthority(): Promise<Authority> {
  const root = await issueBy(undefined, 'CN=Test Root', true)
  const between = await issueBy(root, 'CN=Test Intermediate', true)
  return {
    root: root.certificate.toString('pem'),
    async issue(name, days = 90) {
      const leaf = await issueBy(between, `CN=${name}`, false, days, name)
      const key = Buffer.from(await crypto.subtle.exportKey('pkcs8', leaf.keys.privateKey)).toString('base64')
      const pem = leaf.certificate.toString('pem')
      return {
        key: `-----BEGIN PRIVATE KEY-----\n${key}\n-----END PRIVATE KEY-----\n`,
        leaf: pem,
        chain: `${pem}\n${between.certificate.toString('pem')}`,
      }
    },
  }
}

interface Issued {
  readonly certificate: X509Certificate
  readonly keys: CryptoKeyPair
}

async function issueBy(
  by: Issued | undefined,
  subject: string,
  isAuthority: boolean,
  days = 90,
  name?: string,
): Promise<Issued> {
  const keys = await crypto.subtle.generateKey(algorithm, true, ['sign', 'verify'])
  const certificate = await X509CertificateGenerator.create({
    subject,
    issuer: by?.certificate.subject ?? subject,
    notBefore: new Date(Date.now() - 30 * dayMs),
    notAfter: new Date(Date.now() + days * dayMs),
    signingAlgorithm: algorithm,
    publicKey: keys.publicKey,
    signingKey: by?.keys.privateKey ?? keys.privateKey,
    extensions: [
      new BasicConstraintsExtension(isAuthority, undefined, true),
      ...(isAuthority ? [new KeyUsagesExtension(KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign, true)] : []),
      ...(name === undefined
        ? []
        : [
            new SubjectAlternativeNameExtension([
              /^[\d.]+$/.test(name) ? { type: 'ip', value: name } : { type: 'dns', value: name },
            ]),
          ]),
    ],
  })
  return { certificate, keys }
}
