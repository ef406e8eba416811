import ipaddr from 'ipaddr.js'

/** Names that do not exist on the internet, nor does any name below them. */
const localNames = ['localhost', 'localdomain', 'local', 'internal', 'home.arpa', 'lan']

/**
 * Why the service cannot reach this URL from the internet, as a sentence, or `undefined`. Names are not resolved. The sentence
 * repeats at most the host of the URL.
 *
 * Specification: "Errors", `invalid_webhook_url`.
 */
export function problemWithWebhookUrl(url: string): string | undefined {
  if (!URL.canParse(url)) return 'It is not a URL.'
  // `URL` has already normalized every spelling of an address: 127.1, 0x7f000001, 0177.1, full-width digits.
  const { protocol, hostname } = new URL(url)
  if (protocol !== 'https:' && protocol !== 'http:') return `It begins with ${protocol} instead of https: or http:.`
  if (hostname.startsWith('[')) return problemWithAddress(hostname.slice(1, -1))
  const name = hostname.replace(/\.+$/, '')
  if (ipaddr.IPv4.isValidFourPartDecimal(name)) return problemWithAddress(name)
  if (localNames.some((local) => name === local || name.endsWith(`.${local}`))) {
    return `The name ${name} does not exist outside your own network.`
  }
  if (!name.includes('.')) return `The name "${name}" has no dot, so it can exist in your own network only.`
  return undefined
}

/** Whether a host is this machine. The key may travel without encryption only to this machine. */
export function isLoopback(hostname: string): boolean {
  const name = hostname.replace(/^\[|\]$/g, '').replace(/\.+$/, '')
  if (name === 'localhost' || name.endsWith('.localhost')) return true
  return ipaddr.isValid(name) && rangeOf(ipaddr.parse(name)) === 'loopback'
}

function problemWithAddress(text: string): string | undefined {
  const range = rangeOf(ipaddr.parse(text))
  return range === 'unicast' ? undefined : `The address ${text} is not public: it is in the range "${range}".`
}

/** The range of an address. An IPv6 address that contains an IPv4 address has the range of the IPv4 address. */
function rangeOf(address: ipaddr.IPv4 | ipaddr.IPv6): string {
  if (address instanceof ipaddr.IPv4) return address.range()
  const range = address.range()
  const parts = address.parts
  switch (range) {
    case 'ipv4Mapped':
    case 'rfc6052':
    case 'rfc6145':
      return embeddedRange(parts[6], parts[7])
    case '6to4':
      return embeddedRange(parts[1], parts[2])
    case 'unicast':
      // Only 2000::/3 is assigned. The former site-local and IPv4-compatible addresses are outside it.
      return ((parts[0] ?? 0) & 0xe000) === 0x2000 ? range : 'reserved'
    default:
      return range
  }
}

function embeddedRange(high = 0, low = 0): string {
  return new ipaddr.IPv4([high >> 8, high & 255, low >> 8, low & 255]).range()
}
